// The kernels of head.rs: the softmax of logits, its loss and its gradient.
//
// Bound by memory: the logits are read in f32 and their gradient written in bf16; at the paper's T5 shape (14,592 rows of 32,128)
// 1.9 GB and 0.9 GB, 0.65 ms at 4.3 TB/s. They are read twice, the second time from the cache.

// Less than every number. There is no header that names it.
#define LEAST __int_as_float(0xFF800000)

// A thread's greatest number, and the sum of exponentials relative to it.
struct Running {
    float most, sum;
};

// Four more numbers, of which the first `count` are there.
__device__ __forceinline__ void take(Running& r, Four x, u32 count) {
    float most = r.most;
#pragma unroll
    for (u32 k = 0; k < 4; k++)
        if (k < count) most = fmaxf(most, x.v[k]);
    // Before the first number both are −∞.
    float sum = r.most == most ? r.sum : r.sum * __expf(r.most - most);
#pragma unroll
    for (u32 k = 0; k < 4; k++)
        if (k < count) sum += __expf(x.v[k] - most);
    r = Running{most, sum};
}

__device__ __forceinline__ Running merge(Running a, Running b) {
    float most = fmaxf(a.most, b.most);
    float sum = (a.most == most ? a.sum : a.sum * __expf(a.most - most)) + (b.most == most ? b.sum : b.sum * __expf(b.most - most));
    return Running{most, sum};
}

__device__ __forceinline__ Running merge_warp(Running r) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        Running other = {__shfl_xor_sync(0xFFFFFFFFu, r.most, lanes), __shfl_xor_sync(0xFFFFFFFFu, r.sum, lanes)};
        // The same order in both lanes, so that all get the same bits.
        r = (threadIdx.x & lanes) ? merge(other, r) : merge(r, other);
    }
    return r;
}

// Four logits, with their biases. Rows are padded to whole fours, of which the last may not all be there.
__device__ __forceinline__ Four logits_at(const float* logits, const float* bias, u32 i, u32 vocabulary) {
    Four x = load4(logits + i);
    if (bias) {
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            if (i + k < vocabulary) x.v[k] += bias[i + k];
    }
    return x;
}

// One row by `count` threads; `all` merges what they found. The gradient is 0 behind the vocabulary, up to `stride`.
template <class Merge>
__device__ void softmax_row(const float* logits, const float* bias, u32 vocabulary, u32 stride, u32 target, double* loss, T* gradient, float scale,
                            u32 at, u32 count, Merge all) {
    Running r = {LEAST, 0.0f};
#pragma unroll 4
    for (u32 i = 4 * at; i < vocabulary; i += 4 * count)
        take(r, logits_at(logits, bias, i, vocabulary), vocabulary - i < 4 ? vocabulary - i : 4);
    r = all(r);
    if (at == 0) {
        float there = logits[target] + (bias ? bias[target] : 0.0f);
        *loss = log((double)r.sum) - ((double)there - (double)r.most);
    }
    if (!gradient) return;
    float factor = scale / r.sum;
#pragma unroll 4
    for (u32 i = 4 * at; i < stride; i += 4 * count) {
        Four x = logits_at(logits, bias, i, vocabulary);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            x.v[k] = __expf(x.v[k] - r.most) * factor;
            if (i + k == target) x.v[k] -= scale;
            // What stands behind the row may be anything.
            if (i + k >= vocabulary) x.v[k] = 0.0f;
        }
        store4(gradient + i, x);
    }
}

extern "C" __global__ void cross_entropy_warp(const float* logits, u64 stride, const float* bias, u32 rows, u32 vocabulary,
                                              const u32* targets, double* losses, T* gradient, u64 gradient_stride, float scale) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    softmax_row(logits + row * stride, bias, vocabulary, (u32)gradient_stride, targets[row], losses + row, gradient ? gradient + row * gradient_stride : 0,
                scale, threadIdx.x % 32, 32, [](Running r) { return merge_warp(r); });
}

extern "C" __global__ void __launch_bounds__(512)
    cross_entropy_block(const float* logits, u64 stride, const float* bias, u32 rows, u32 vocabulary, const u32* targets, double* losses,
                        T* gradient, u64 gradient_stride, float scale) {
    __shared__ Running room[17];
    u64 row = blockIdx.x;
    auto all = [&](Running r) {
        r = merge_warp(r);
        if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = r;
        __syncthreads();
        if (threadIdx.x == 0) {
            Running merged = room[0];
            for (u32 i = 1; i < blockDim.x / 32; i++) merged = merge(merged, room[i]);
            room[16] = merged;
        }
        __syncthreads();
        return room[16];
    };
    softmax_row(logits + row * stride, bias, vocabulary, (u32)gradient_stride, targets[row], losses + row, gradient ? gradient + row * gradient_stride : 0,
                scale, threadIdx.x, blockDim.x, all);
}

// The logits of one row, a warp for each.
extern "C" __global__ void logits_of_row(const float* weight, const float* bias, const T* h, u32 vocabulary, u32 width, float* out) {
    u32 index = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (index >= vocabulary) return;
    double sum = 0.0;
    for (u32 i = lane; i < width; i += 32) sum += (double)weight[(u64)index * width + i] * to_float(h[i]);
    sum = warp_sum(sum);
    if (lane == 0) out[index] = (float)(sum + (bias ? bias[index] : 0.0f));
}
