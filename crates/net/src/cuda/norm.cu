// The kernels of norm.rs: a branch is added to the stream, and the stream is normalised row by row.
//
// Bound by memory. Forward with a branch reads two numbers and writes two, and backward reads three and writes two, for each
// number of the stream: at the paper's GPT shape (16,384 rows of 384 in bf16) 50 and 63 MB, 12 and 15 µs at 4.3 TB/s.
// A warp takes a row, and keeps it in registers: CHUNKS times 128 numbers, four in each lane.

// A row that fits in registers, whose width is a multiple of four.
template <int CHUNKS>
__device__ void norm_forward(u32 rows, u32 width, bool rms, float epsilon, const float* weight, const T* stream_in, const T* branch,
                             T* stream_out, T* out, float* statistics, Dropout d) {
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    u64 start = (u64)row * width;
    u64 mask = (u64)(row % d.period) * width;
    u32 step = branch ? step_of(d) : 0;
    Four x[CHUNKS];
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        u32 at = c * 128 + lane * 4;
        x[c] = Four{{0.0f, 0.0f, 0.0f, 0.0f}};
        if (at >= width) continue;
        x[c] = load4(stream_in + start + at);
        if (branch) {
            Four b = load4(branch + start + at), keep = keep4(d, step, (mask + at) / 4);
#pragma unroll
            for (int k = 0; k < 4; k++) x[c].v[k] = rounded<T>(fmaf(keep.v[k], b.v[k], x[c].v[k]));
            store4(stream_out + start + at, x[c]);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) sum += x[c].v[k];
    }
    float mean = rms ? 0.0f : warp_sum(sum) / width;
    float squares = 0.0f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (c * 128 + lane * 4 >= width) continue;
#pragma unroll
        for (int k = 0; k < 4; k++) squares += (x[c].v[k] - mean) * (x[c].v[k] - mean);
    }
    float scale = 1.0f / sqrtf(warp_sum(squares) / width + epsilon);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        u32 at = c * 128 + lane * 4;
        if (at >= width) continue;
        Four w = load4(weight + at);
#pragma unroll
        for (int k = 0; k < 4; k++) w.v[k] *= (x[c].v[k] - mean) * scale;
        store4(out + start + at, w);
    }
    if (lane == 0) statistics[2 * (u64)row] = mean, statistics[2 * (u64)row + 1] = scale;
}

// The blocks go over all rows; each leaves its part of the weight's gradient.
template <int CHUNKS>
__device__ void norm_backward(u32 rows, u32 width, bool rms, const float* weight, const T* stream, const float* statistics,
                              const T* d_out, T* d_stream, T* d_branch, float* partial, Dropout d) {
    extern __shared__ float room[];
    u32 warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 step = d_branch ? step_of(d) : 0;
    Four d_weight[CHUNKS];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) d_weight[c] = Four{{0.0f, 0.0f, 0.0f, 0.0f}};
    for (u32 row = blockIdx.x * warps + warp; row < rows; row += gridDim.x * warps) {
        u64 start = (u64)row * width, mask = (u64)(row % d.period) * width;
        // Everything is asked for before anything is used.
        Four hat[CHUNKS], e[CHUNKS], to[CHUNKS];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            u32 at = c * 128 + lane * 4;
            hat[c] = e[c] = Four{{0.0f, 0.0f, 0.0f, 0.0f}};
            if (at >= width) continue;
            hat[c] = load4(stream + start + at);
            e[c] = load4(d_out + start + at);
            to[c] = load4(d_stream + start + at);
        }
        float mean = statistics[2 * (u64)row], scale = statistics[2 * (u64)row + 1], centre = 0.0f, slope = 0.0f;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            u32 at = c * 128 + lane * 4;
            if (at >= width) continue;
            Four w = load4(weight + at);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                hat[c].v[k] = (hat[c].v[k] - mean) * scale;
                d_weight[c].v[k] += e[c].v[k] * hat[c].v[k];
                e[c].v[k] *= w.v[k];
                centre += e[c].v[k];
                slope += e[c].v[k] * hat[c].v[k];
            }
        }
        centre = rms ? 0.0f : warp_sum(centre) / width;
        slope = warp_sum(slope) / width;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            u32 at = c * 128 + lane * 4;
            if (at >= width) continue;
#pragma unroll
            for (int k = 0; k < 4; k++)
                to[c].v[k] = rounded<T>(to[c].v[k] + scale * (e[c].v[k] - centre - hat[c].v[k] * slope));
            store4(d_stream + start + at, to[c]);
            if (d_branch) {
                Four keep = keep4(d, step, (mask + at) / 4);
#pragma unroll
                for (int k = 0; k < 4; k++) keep.v[k] *= to[c].v[k];
                store4(d_branch + start + at, keep);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        u32 at = c * 128 + lane * 4;
        if (at < width) store4(room + warp * width + at, d_weight[c]);
    }
    __syncthreads();
    for (u32 column = threadIdx.x; column < width; column += blockDim.x) {
        float sum = 0.0f;
        for (u32 i = 0; i < warps; i++) sum += room[i * width + column];
        partial[(u64)blockIdx.x * width + column] = sum;
    }
}

#define NORM(CHUNKS, WARPS)                                                                                                         \
    extern "C" __global__ void norm_forward_##CHUNKS(u32 rows, u32 width, bool rms, float epsilon, const float* weight,         \
                                                     const T* stream_in, const T* branch, T* stream_out, T* out,                \
                                                     float* statistics, DROPOUT(d)) {                                           \
        norm_forward<CHUNKS>(rows, width, rms, epsilon, weight, stream_in, branch, stream_out, out, statistics, DROPOUT_OF(d)); \
    }                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(32 * WARPS) \
        norm_backward_##CHUNKS(u32 rows, u32 width, bool rms, const float* weight, const T* stream, const float* statistics,    \
                               const T* d_out, T* d_stream, T* d_branch, float* partial, DROPOUT(d)) {                          \
        norm_backward<CHUNKS>(rows, width, rms, weight, stream, statistics, d_out, d_stream, d_branch, partial, DROPOUT_OF(d)); \
    }

NORM(1, 25)
NORM(2, 25)
NORM(3, 25)
NORM(4, 16)
NORM(6, 12)
NORM(8, 12)

// Any width: a warp reads its row again for every pass over it.
extern "C" __global__ void norm_forward_any(u32 rows, u32 width, bool rms, float epsilon, const float* weight, const T* stream_in,
                                            const T* branch, T* stream_out, T* out, float* statistics, DROPOUT(d)) {
    Dropout d = DROPOUT_OF(d);
    u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const T* x = stream_in + (u64)row * width;
    if (branch) {
        u64 mask = (u64)(row % d.period) * width;
        T* to = stream_out + (u64)row * width;
        u32 step = step_of(d);
        for (u32 i = lane; i < width; i += 32)
            store(to + i, fmaf(keep1(d, step, mask + i), to_float(branch[(u64)row * width + i]), to_float(x[i])));
        x = to;
    }
    float sum = 0.0f, squares = 0.0f;
    for (u32 i = lane; i < width; i += 32) sum += to_float(x[i]);
    float mean = rms ? 0.0f : warp_sum(sum) / width;
    for (u32 i = lane; i < width; i += 32) squares += (to_float(x[i]) - mean) * (to_float(x[i]) - mean);
    float scale = 1.0f / sqrtf(warp_sum(squares) / width + epsilon);
    for (u32 i = lane; i < width; i += 32) store(out + (u64)row * width + i, (to_float(x[i]) - mean) * scale * weight[i]);
    if (lane == 0) statistics[2 * (u64)row] = mean, statistics[2 * (u64)row + 1] = scale;
}

extern "C" __global__ void norm_backward_any(u32 rows, u32 width, bool rms, const float* weight, const T* stream, const float* statistics,
                                             const T* d_out, T* d_stream, T* d_branch, float* partial, DROPOUT(d)) {
    Dropout d = DROPOUT_OF(d);
    u32 warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 step = d_branch ? step_of(d) : 0;
    // One row of partial sums for every warp of the grid, which nobody else touches.
    float* sums = partial + (u64)(blockIdx.x * warps + warp) * width;
    for (u32 i = lane; i < width; i += 32) sums[i] = 0.0f;
    for (u32 row = blockIdx.x * warps + warp; row < rows; row += gridDim.x * warps) {
        u64 start = (u64)row * width, mask = (u64)(row % d.period) * width;
        float mean = statistics[2 * (u64)row], scale = statistics[2 * (u64)row + 1], centre = 0.0f, slope = 0.0f;
        for (u32 i = lane; i < width; i += 32) {
            float hat = (to_float(stream[start + i]) - mean) * scale, out = to_float(d_out[start + i]);
            sums[i] += out * hat;
            centre += weight[i] * out;
            slope += weight[i] * out * hat;
        }
        centre = rms ? 0.0f : warp_sum(centre) / width;
        slope = warp_sum(slope) / width;
        for (u32 i = lane; i < width; i += 32) {
            float hat = (to_float(stream[start + i]) - mean) * scale;
            float to = to_float(d_stream[start + i]) + scale * (weight[i] * to_float(d_out[start + i]) - centre - hat * slope);
            to = rounded<T>(to);
            store(d_stream + start + i, to);
            if (d_branch) store(d_branch + start + i, to * keep1(d, step, mask + i));
        }
    }
}
