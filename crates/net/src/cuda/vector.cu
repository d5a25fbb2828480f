// The kernels of vector.rs: passes over all parameters, and over buffers number by number.
//
// All are bound by memory: with n numbers, `sum_squares` reads 4n bytes, `update` reads 8n and writes 4n (6n with the copy in bf16),
// `adam` reads 16n and writes 12n. Threads take 16 bytes at a time, and as many blocks as run at once go over the whole.

#define GRID_STRIDE_4(i, len) \
    for (u64 i = 4 * ((u64)blockIdx.x * blockDim.x + threadIdx.x); i < (len); i += 4 * (u64)gridDim.x * blockDim.x)

// Each block has summed its part; the last one to come sums the blocks' sums in their order.
__device__ void finish_sum(double sum, double* partial, u32* ticket, double* to, double scale) {
    __shared__ double room[33];
    __shared__ bool last;
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        // Counts up to the number of blocks, and begins again at 0.
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    double all = 0.0;
    for (u32 block = threadIdx.x; block < gridDim.x; block += blockDim.x) all += ((volatile double*)partial)[block];
    all = block_sum(all, room);
    if (threadIdx.x == 0) *to = scale * all;
}

struct Square {
    static __device__ double of(float a, float) { return (double)a * a; }
};
struct SquareDistance {
    static __device__ double of(float a, float b) {
        double d = (double)a - b;
        return d * d;
    }
};
struct Plain {
    static __device__ double of(float a, float) { return a; }
};

template <class F, bool TWO, class S>
__device__ void sum_of(const S* a, const S* b, u64 len, double* partial, u32* ticket, double* to, double scale) {
    double sum = 0.0;
    GRID_STRIDE_4(i, len) {
        if (i + 4 <= len) {
            Four x = load4(a + i), y = TWO ? load4(b + i) : x;
            for (int k = 0; k < 4; k++) sum += F::of(x.v[k], y.v[k]);
        } else {
            for (u64 j = i; j < len; j++) sum += F::of(to_float(a[j]), to_float(b[j]));
        }
    }
    finish_sum(sum, partial, ticket, to, scale);
}

extern "C" __global__ void sum_squares(const float* a, const float* b, u64 len, double* partial, u32* ticket, double* to, double scale) {
    sum_of<Square, false>(a, b, len, partial, ticket, to, scale);
}
extern "C" __global__ void sum_square_distance(const float* a, const float* b, u64 len, double* partial, u32* ticket, double* to,
                                               double scale) {
    sum_of<SquareDistance, true>(a, b, len, partial, ticket, to, scale);
}
extern "C" __global__ void sum_plain(const float* a, const float* b, u64 len, double* partial, u32* ticket, double* to, double scale) {
    sum_of<Plain, false>(a, b, len, partial, ticket, to, scale);
}
extern "C" __global__ void sum_squares_buffer(const T* a, const T* b, u64 len, double* partial, u32* ticket, double* to, double scale) {
    sum_of<Square, false>(a, b, len, partial, ticket, to, scale);
}
// Numbers that need not stand at multiples of four.
extern "C" __global__ void sum_square_distance_buffer(const T* a, const T* b, u64 len, double* partial, u32* ticket, double* to,
                                                      double scale) {
    double sum = 0.0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < len; i += (u64)gridDim.x * blockDim.x)
        sum += SquareDistance::of(to_float(a[i]), to_float(b[i]));
    finish_sum(sum, partial, ticket, to, scale);
}
// Sums of numbers in f64.
extern "C" __global__ void sum_doubles(const double* a, u64 len, double* partial, u32* ticket, double* to, double scale) {
    double sum = 0.0;
#pragma unroll 8
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < len; i += (u64)gridDim.x * blockDim.x) sum += a[i];
    finish_sum(sum, partial, ticket, to, scale);
}

// The arena's length is a multiple of 16 in training, but not everywhere.
extern "C" __global__ void update(float* to, bf16* narrow, const float* from, const float* gradient, u64 len, float size, float keep) {
    GRID_STRIDE_4(i, len) {
        if (i + 4 <= len) {
            Four x = load4(from + i), g = load4(gradient + i);
            for (int k = 0; k < 4; k++) x.v[k] = x.v[k] * keep - size * g.v[k];
            store4(to + i, x);
            if (narrow) store4(narrow + i, x);
        } else {
            for (u64 j = i; j < len; j++) {
                float x = from[j] * keep - size * gradient[j];
                to[j] = x;
                if (narrow) store(narrow + j, x);
            }
        }
    }
}

// Whether a number is in one of the ranges, which are sorted: starts and ends in turn.
__device__ __forceinline__ bool inside(const u32* ranges, u32 count, u64 at) {
    u32 low = 0, high = count;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (ranges[2 * middle + 1] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[2 * low] <= at;
}

extern "C" __global__ void adam(float* x, bf16* narrow, const float* gradient, float* m, float* v, u64 len, const u32* decayed, u32 count,
                                float scale, float old_m, float new_m, float old_v, float new_v, float keep, float size, float root,
                                float eps) {
    GRID_STRIDE_4(i, len) {
        bool whole = i + 4 <= len;
        u64 last = whole ? i + 3 : len - 1;
        Four g, xs, ms, vs;
        if (whole) {
            g = load4(gradient + i), xs = load4(x + i), ms = load4(m + i), vs = load4(v + i);
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (i + k < len) g.v[k] = gradient[i + k], xs.v[k] = x[i + k], ms.v[k] = m[i + k], vs.v[k] = v[i + k];
        }
        bool first_decays = inside(decayed, count, i), same = first_decays == inside(decayed, count, last);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float at = scale * g.v[k];
            ms.v[k] = old_m * ms.v[k] + new_m * at;
            vs.v[k] = old_v * vs.v[k] + new_v * at * at;
            bool decays = same ? first_decays : inside(decayed, count, i + k);
            xs.v[k] = (decays ? keep : 1.0f) * xs.v[k] - size * ms.v[k] / (root * sqrtf(vs.v[k]) + eps);
        }
        if (whole) {
            store4(x + i, xs), store4(m + i, ms), store4(v + i, vs);
            if (narrow) store4(narrow + i, xs);
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (i + k >= len) continue;
                x[i + k] = xs.v[k], m[i + k] = ms.v[k], v[i + k] = vs.v[k];
                if (narrow) store(narrow + i + k, xs.v[k]);
            }
        }
    }
}

extern "C" __global__ void narrow(bf16* to, const float* from, u64 len) {
    GRID_STRIDE_4(i, len) {
        if (i + 4 <= len)
            store4(to + i, load4(from + i));
        else
            for (u64 j = i; j < len; j++) store(to + j, from[j]);
    }
}

extern "C" __global__ void add(const T* from, T* to, u64 len) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) store(to + i, to_float(to[i]) + to_float(from[i]));
}

extern "C" __global__ void add_statistic(const float* from, float* to, u64 len) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) to[i] += from[i];
}

// The mask repeats after so many numbers: element i of the rows has element i mod `repeat` of the mask.
extern "C" __global__ void dropout_4(const T* from, T* to, u32 len, u32 repeat, DROPOUT(d)) {
    Dropout d = DROPOUT_OF(d);
    u32 i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= len) return;
    Four x = load4(from + i), keep = keep4(d, step_of(d), (i % repeat) / 4);
    for (int k = 0; k < 4; k++) x.v[k] *= keep.v[k];
    store4(to + i, x);
}

extern "C" __global__ void dropout_1(const T* from, T* to, u32 len, u32 repeat, DROPOUT(d)) {
    Dropout d = DROPOUT_OF(d);
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) store(to + i, to_float(from[i]) * keep1(d, step_of(d), i % repeat));
}

// The first step of column sums: block (x, y) sums the y-th part of the rows for 32 columns, eight rows at a time.
template <class S>
__device__ void column_parts(const S* from, u64 rows, u32 columns, u64 stride, u32 part, float* partial) {
    __shared__ float room[8][33];
    u32 column = blockIdx.x * 32 + threadIdx.x % 32, lane = threadIdx.x / 32;
    u64 first = (u64)blockIdx.y * part, end = first + part < rows ? first + part : rows;
    float sum = 0.0f;
    if (column < columns)
        for (u64 row = first + lane; row < end; row += 8) sum += to_float(from[row * stride + column]);
    room[lane][threadIdx.x % 32] = sum;
    __syncthreads();
    if (lane == 0 && column < columns) {
        for (int i = 1; i < 8; i++) sum += room[i][threadIdx.x];
        partial[(u64)blockIdx.y * columns + column] = sum;
    }
}

extern "C" __global__ void column_parts_of_buffer(const T* from, u64 rows, u32 columns, u64 stride, u32 part, float* partial) {
    column_parts(from, rows, columns, stride, part, partial);
}

// The second: sums the parts, 32 at a time, and writes or adds.
extern "C" __global__ void column_sums(const float* partial, u32 parts, u32 columns, float* to, bool add) {
    __shared__ float room[32][33];
    u32 column = blockIdx.x * 32 + threadIdx.x % 32, lane = threadIdx.x / 32;
    float sum = 0.0f;
    if (column < columns) {
#pragma unroll 8
        for (u32 row = lane; row < parts; row += 32) sum += partial[(u64)row * columns + column];
    }
    room[lane][threadIdx.x % 32] = sum;
    __syncthreads();
    if (lane == 0 && column < columns) {
        for (int i = 1; i < 32; i++) sum += room[i][threadIdx.x];
        to[column] = add ? to[column] + sum : sum;
    }
}
