// What the kernels of passes over many tensors share; kernels.rs writes their text behind it.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A tensor: its length, and its options.
struct Tensor {
    u64 len;
    double decay, scale, rate, share;
};

// A part of a tensor: CHUNK numbers, or what is left.
struct Chunk {
    u32 tensor, number;
};

struct bf16 {
    u16 bits;
};

struct f16 {
    u16 bits;
};

__device__ __forceinline__ double wide(double x) { return x; }
__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ float wide(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ __forceinline__ float wide(f16 x) {
    float to;
    asm("cvt.f32.f16 %0, %1;" : "=f"(to) : "h"(x.bits));
    return to;
}

// Rounded to the nearest, ties to even.
__device__ __forceinline__ void put(double& to, double x) { to = x; }
__device__ __forceinline__ void put(float& to, float x) { to = x; }
__device__ __forceinline__ void put(bf16& to, float x) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(0.0f), "f"(x));
    to.bits = (u16)packed;
}
__device__ __forceinline__ void put(f16& to, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }

// Four numbers side by side in memory, one access or two of 16 bytes.
template <class S>
struct alignas(4 * sizeof(S) < 16 ? 4 * sizeof(S) : 16) Stored {
    S v[4];
};

// Four numbers to compute with.
template <class W>
struct Four {
    W v[4];
};

template <class S>
__device__ __forceinline__ bool is_aligned(const S* at) {
    return ((u64)at & (alignof(Stored<S>) - 1)) == 0;
}

// The numbers from an address on: four where `whole`, else the `len` that there are, and zeros.
template <class W, class S>
__device__ __forceinline__ Four<W> load(const S* from, u32 len, bool whole) {
    Four<W> to = {};
    if (whole) {
        Stored<S> stored = *(const Stored<S>*)from;
#pragma unroll
        for (int k = 0; k < 4; k++) to.v[k] = wide(stored.v[k]);
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (k < len) to.v[k] = wide(from[k]);
    }
    return to;
}

template <class W, class S>
__device__ __forceinline__ void store(S* to, Four<W> from, u32 len, bool whole) {
    Stored<S> stored;
#pragma unroll
    for (int k = 0; k < 4; k++) put(stored.v[k], from.v[k]);
    if (whole) {
        *(Stored<S>*)to = stored;
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (k < len) to[k] = stored.v[k];
    }
}

template <class W>
__device__ __forceinline__ Four<W> times(Four<W> x, W factor) {
#pragma unroll
    for (int k = 0; k < 4; k++) x.v[k] = factor * x.v[k];
    return x;
}

// What a gradient is multiplied by: it takes out a GradScaler's scale.
template <class W>
__device__ __forceinline__ W factor_of(const float* grad_scale) {
    return grad_scale ? (W)(1.0 / (double)*grad_scale) : (W)1;
}

// The sum over a block, in its first thread, in a fixed order. `room` holds 32 numbers and may be used again at once.
__device__ __forceinline__ double block_sum(double x, double* room) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
    __syncthreads();
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0.0;
    if (threadIdx.x == 0)
        for (u32 warp = 0; warp < blockDim.x / 32; warp++) sum += room[warp];
    return sum;
}

// The sums of a pass: where its numbers are, how many terms it has, where they go, and where its chunks' sums begin.
struct Measured {
    u32 scalars, terms, at, partial;
};

struct AllMeasured {
    Measured of[16];
};

// Adds up the chunks' sums in their order, each pass in a block of its own, and puts the caller's numbers in front of the sums.
extern "C" __global__ void __launch_bounds__(1024) add_up(const Chunk* chunks, u32 count, const Tensor* tensors, const double* scalars,
                                                          const double* partial, double* sums, const double* loss, double loss_value,
                                                          const float* found_infinite, AllMeasured all) {
    __shared__ double room[32];
    Measured pass = all.of[blockIdx.x];
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        sums[0] = loss ? *loss : loss_value;
        sums[1] = found_infinite ? (double)*found_infinite : 0.0;
    }
    if (scalars[pass.scalars] == 0.0) return;
    for (u32 k = 0; k < pass.terms; k++) {
        double sum = 0.0;
        for (u32 at = threadIdx.x; at < count; at += blockDim.x)
            sum += tensors[chunks[at].tensor].share * partial[pass.partial + (u64)at * pass.terms + k];
        sum = block_sum(sum, room);
        if (threadIdx.x == 0) sums[pass.at + k] = sum;
    }
}
