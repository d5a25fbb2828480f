// The kernels of linear.rs: what follows a product, and its backward pass.
//
// Bound by memory: `gelu` reads and writes 2 bytes a number in bf16 (at the paper's GPT shape 101 MB, 23 µs at 4.3 TB/s), its
// backward pass reads 4 and writes 2. So arithmetic has to stay below some 40 instructions a number.

// The distribution function of the normal distribution and its density times √(2π), which share their exponential.
// Abramowitz & Stegun 7.1.26: the absolute error is below 7.5e-8.
__device__ __forceinline__ void normal(float x, float* cdf, float* bell) {
    float z = fabsf(x) * 0.70710678f;
    float t = __fdividef(1.0f, fmaf(0.3275911f, z, 1.0f));
    float e = __expf(-z * z);
    float p = fmaf(fmaf(fmaf(fmaf(1.061405429f, t, -1.453152027f), t, 1.421413741f), t, -0.284496736f), t, 0.254829592f);
    float tail = 0.5f * p * t * e;
    *cdf = x < 0.0f ? tail : 1.0f - tail;
    *bell = e;
}

__device__ __forceinline__ float gelu_of(float x) {
    float cdf, bell;
    normal(x, &cdf, &bell);
    return x * cdf;
}

__device__ __forceinline__ float gelu_slope(float x) {
    float cdf, bell;
    normal(x, &cdf, &bell);
    return fmaf(0.39894228f * x, bell, cdf);
}

// x·sigmoid(2√(2/π)(x + 0.044715x³)) and its derivative; beyond ±100 the sigmoid is 0 or 1.
__device__ __forceinline__ void gelu_tanh_of(float x, float* value, float* slope) {
    const float factor = 1.5957691216f;
    float limited = fminf(100.0f, fmaxf(-100.0f, x));
    float s = limited * limited;
    float argument = limited * fmaf(s, 0.044715f * factor, factor);
    float e = __expf(-fabsf(argument));
    float near = __fdividef(1.0f, 1.0f + e), far = e * near;
    float sigmoid = argument > 0.0f ? near : far, other = argument > 0.0f ? far : near;
    *value = x * sigmoid;
    *slope = fmaf(limited * sigmoid * fmaf(s, 3.0f * 0.044715f * factor, factor), other, sigmoid);
}

struct Gelu {
    static __device__ float of(float x) { return gelu_of(x); }
    static __device__ float slope(float x) { return gelu_slope(x); }
};
struct GeluTanh {
    static __device__ float of(float x) {
        float value, slope;
        gelu_tanh_of(x, &value, &slope);
        return value;
    }
    static __device__ float slope(float x) {
        float value, slope;
        gelu_tanh_of(x, &value, &slope);
        return slope;
    }
};

// Each thread takes eight numbers.
template <class F>
__device__ void activate(const T* before, T* out, u64 len) {
    u64 i = 8 * ((u64)blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 8 <= len) {
        Eight x = load8(before + i);
#pragma unroll
        for (int k = 0; k < 8; k++) x.v[k] = F::of(x.v[k]);
        store8(out + i, x);
    } else {
        for (u64 j = i; j < len; j++) store(out + j, F::of(to_float(before[j])));
    }
}

// `before` is overwritten with its gradient.
template <class F>
__device__ void activate_backward(T* before, const T* d_out, u64 len) {
    u64 i = 8 * ((u64)blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 8 <= len) {
        Eight x = load8(before + i), d = load8(d_out + i);
#pragma unroll
        for (int k = 0; k < 8; k++) x.v[k] = d.v[k] * F::slope(x.v[k]);
        store8(before + i, x);
    } else {
        for (u64 j = i; j < len; j++) store(before + j, to_float(d_out[j]) * F::slope(to_float(before[j])));
    }
}

extern "C" __global__ void gelu(const T* before, T* out, u64 len) { activate<Gelu>(before, out, len); }
extern "C" __global__ void gelu_backward(T* before, const T* d_out, u64 len) { activate_backward<Gelu>(before, d_out, len); }
extern "C" __global__ void gelu_tanh(const T* before, T* out, u64 len) { activate<GeluTanh>(before, out, len); }
extern "C" __global__ void gelu_tanh_backward(T* before, const T* d_out, u64 len) { activate_backward<GeluTanh>(before, d_out, len); }

// `before` has rows of 2·width: a, and then g.
extern "C" __global__ void gated_8(const T* before, T* out, u32 rows, u32 width) {
    u32 i = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= rows * width) return;
    const T* a = before + i + (u64)(i / width) * width;
    Eight x = load8(a), g = load8(a + width);
#pragma unroll
    for (int k = 0; k < 8; k++) x.v[k] = GeluTanh::of(x.v[k]) * g.v[k];
    store8(out + i, x);
}

extern "C" __global__ void gated_1(const T* before, T* out, u32 rows, u32 width) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * width) return;
    const T* a = before + i + (u64)(i / width) * width;
    store(out + i, GeluTanh::of(to_float(*a)) * to_float(a[width]));
}

extern "C" __global__ void gated_backward_8(T* before, const T* d_out, u32 rows, u32 width) {
    u32 i = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= rows * width) return;
    T* a = before + i + (u64)(i / width) * width;
    Eight x = load8(a), g = load8(a + width), d = load8(d_out + i);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        float value, slope;
        gelu_tanh_of(x.v[k], &value, &slope);
        x.v[k] = d.v[k] * g.v[k] * slope;
        g.v[k] = d.v[k] * value;
    }
    store8(a, x);
    store8(a + width, g);
}

extern "C" __global__ void gated_backward_1(T* before, const T* d_out, u32 rows, u32 width) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * width) return;
    T* a = before + i + (u64)(i / width) * width;
    float value, slope, d = to_float(d_out[i]);
    gelu_tanh_of(to_float(*a), &value, &slope);
    store(a, d * to_float(a[width]) * slope);
    store(a + width, d * value);
}

extern "C" __global__ void add_bias(T* to, const float* bias, u64 len, u32 width) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) store(to + i, to_float(to[i]) + bias[i % width]);
}
