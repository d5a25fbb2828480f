// What all kernels share: number types, vectors of four, random numbers, sums over a warp and a block.
// It is put in front of every source. BF16 says what activations and the weights of products are stored in.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct bf16 {
    u16 bits;
};

#if BF16
typedef bf16 T;
#else
typedef float T;
#endif

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

// Two numbers rounded to the nearest bf16, ties to even; `low` stands first in memory.
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ float low_bf16(u32 packed) { return __uint_as_float(packed << 16); }
__device__ __forceinline__ float high_bf16(u32 packed) { return __uint_as_float(packed & 0xFFFF0000u); }

__device__ __forceinline__ void store(float* to, float x) { *to = x; }
__device__ __forceinline__ void store(bf16* to, float x) { to->bits = (u16)pack_bf16(x, 0.0f); }

// What a number becomes when it is stored and read again.
template <class S>
__device__ __forceinline__ float rounded(float x) {
    S stored;
    store(&stored, x);
    return to_float(stored);
}

// Four numbers side by side; the address is a multiple of four numbers.
struct Four {
    float v[4];
};

__device__ __forceinline__ Four load4(const float* from) {
    float4 x = *(const float4*)from;
    return Four{{x.x, x.y, x.z, x.w}};
}

__device__ __forceinline__ Four load4(const bf16* from) {
    uint2 x = *(const uint2*)from;
    return Four{{low_bf16(x.x), high_bf16(x.x), low_bf16(x.y), high_bf16(x.y)}};
}

__device__ __forceinline__ void store4(float* to, Four x) { *(float4*)to = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]); }

__device__ __forceinline__ void store4(bf16* to, Four x) {
    *(uint2*)to = make_uint2(pack_bf16(x.v[0], x.v[1]), pack_bf16(x.v[2], x.v[3]));
}

// Eight numbers side by side; the address is a multiple of eight numbers. In bf16 they are one access of 16 bytes.
struct Eight {
    float v[8];
};

__device__ __forceinline__ Eight load8(const float* from) {
    float4 x = ((const float4*)from)[0], y = ((const float4*)from)[1];
    return Eight{{x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w}};
}

__device__ __forceinline__ Eight load8(const bf16* from) {
    uint4 x = *(const uint4*)from;
    return Eight{{low_bf16(x.x), high_bf16(x.x), low_bf16(x.y), high_bf16(x.y), low_bf16(x.z), high_bf16(x.z), low_bf16(x.w),
                  high_bf16(x.w)}};
}

__device__ __forceinline__ void store8(float* to, Eight x) {
    ((float4*)to)[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    ((float4*)to)[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}

__device__ __forceinline__ void store8(bf16* to, Eight x) {
    *(uint4*)to = make_uint4(pack_bf16(x.v[0], x.v[1]), pack_bf16(x.v[2], x.v[3]), pack_bf16(x.v[4], x.v[5]), pack_bf16(x.v[6], x.v[7]));
}

// Philox 4x32-10, as `random.rs` has it.
__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u32 low0 = 0xD2511F53u * counter.x, high0 = __umulhi(0xD2511F53u, counter.x);
        u32 low2 = 0xCD9E8D57u * counter.z, high2 = __umulhi(0xCD9E8D57u, counter.z);
        counter = make_uint4(high2 ^ counter.y ^ key.x, low2, high0 ^ counter.w ^ key.y, low0);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

// Dropout. The step stands in memory, so that a recorded graph can be played again at another one. A limit of 0 drops nothing.
struct Dropout {
    u64 seed;
    u32 site;
    u32 limit;
    float keep;
    const u32* step;
    u32 period;
};

#define DROPOUT(d) u64 d##_seed, u32 d##_site, u32 d##_limit, float d##_keep, const u32 *d##_step, u32 d##_period
#define DROPOUT_OF(d) \
    Dropout { d##_seed, d##_site, d##_limit, d##_keep, d##_step, d##_period }

// The factors of the four elements from 4·block on.
__device__ __forceinline__ Four keep4(const Dropout& d, u32 step, u64 block) {
    if (d.limit == 0) return Four{{1.0f, 1.0f, 1.0f, 1.0f}};
    uint4 bits = philox(make_uint4((u32)block, (u32)(block >> 32), step, d.site), make_uint2((u32)d.seed, (u32)(d.seed >> 32)));
    return Four{{bits.x < d.limit ? 0.0f : d.keep, bits.y < d.limit ? 0.0f : d.keep, bits.z < d.limit ? 0.0f : d.keep,
                 bits.w < d.limit ? 0.0f : d.keep}};
}

// The factor of one element.
__device__ __forceinline__ float keep1(const Dropout& d, u32 step, u64 index) {
    if (d.limit == 0) return 1.0f;
    Four four = keep4(d, step, index >> 2);
    u32 at = (u32)index & 3u;
    return at < 2 ? (at == 0 ? four.v[0] : four.v[1]) : (at == 2 ? four.v[2] : four.v[3]);
}

__device__ __forceinline__ u32 step_of(const Dropout& d) { return d.limit == 0 ? 0 : *d.step; }

// Sums that come out the same in every lane, in a fixed order.
template <class S>
__device__ __forceinline__ S warp_sum(S x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, lanes));
    return x;
}

// The sum over a block, in every thread. `room` holds 33 numbers of shared memory and may be used again at once.
template <class S>
__device__ __forceinline__ S block_sum(S x, S* room) {
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x == 0) {
        S sum = room[0];
        for (u32 warp = 1; warp < (blockDim.x + 31) / 32; warp++) sum += room[warp];
        room[32] = sum;
    }
    __syncthreads();
    return room[32];
}

// A pass by as many blocks as run at once, each thread taking four numbers at a time, which are 16 bytes in f32.
#define GRID_STRIDE_4(i, len) \
    for (u64 i = 4 * ((u64)blockIdx.x * blockDim.x + threadIdx.x); i < (len); i += 4 * (u64)gridDim.x * blockDim.x)

// Each thread has summed its part; the last block to come sums the blocks' sums in their order. `partial` has room for as many
// numbers as there are blocks, for every sum.
template <int SUMS>
__device__ void finish_sums(const double (&sums)[SUMS], double* partial, u32* ticket, double* to, double scale) {
    __shared__ double room[33];
    __shared__ bool last;
#pragma unroll
    for (int k = 0; k < SUMS; k++) {
        double sum = block_sum(sums[k], room);
        if (threadIdx.x == 0) partial[k * gridDim.x + blockIdx.x] = sum;
    }
    if (threadIdx.x == 0) {
        __threadfence();
        // Counts up to the number of blocks, and begins again at 0.
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (int k = 0; k < SUMS; k++) {
        double all = 0.0;
        for (u32 block = threadIdx.x; block < gridDim.x; block += blockDim.x)
            all += ((volatile double*)partial)[k * gridDim.x + block];
        all = block_sum(all, room);
        if (threadIdx.x == 0) to[k] = scale * all;
    }
}

__device__ __forceinline__ void finish_sum(double sum, double* partial, u32* ticket, double* to, double scale) {
    double sums[1] = {sum};
    finish_sums(sums, partial, ticket, to, scale);
}
