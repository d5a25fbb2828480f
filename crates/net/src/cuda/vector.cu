// The kernels of vector.rs: passes over buffers number by number, and sums of partial results. All are bound by memory.

extern "C" __global__ void sum_squares_buffer(const T* a, const T*, u64 len, double* partial, u32* ticket, double* to, double scale) {
    double sum = 0.0;
    GRID_STRIDE_4(i, len) {
        if (i + 4 <= len) {
            Four x = load4(a + i);
            for (int k = 0; k < 4; k++) sum += (double)x.v[k] * x.v[k];
        } else {
            for (u64 j = i; j < len; j++) sum += (double)to_float(a[j]) * to_float(a[j]);
        }
    }
    finish_sum(sum, partial, ticket, to, scale);
}
// Numbers that need not stand at multiples of four.
extern "C" __global__ void sum_square_distance_buffer(const T* a, const T* b, u64 len, double* partial, u32* ticket, double* to,
                                                      double scale) {
    double sum = 0.0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < len; i += (u64)gridDim.x * blockDim.x) {
        double difference = (double)to_float(a[i]) - to_float(b[i]);
        sum += difference * difference;
    }
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
