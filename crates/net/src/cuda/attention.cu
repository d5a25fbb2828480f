// Attention for any width of a head up to 256 and any type; flash.cu has faster kernels for bf16 and some widths.
//
// A warp has 4 queries (or keys), a block 16. Of the other side, 32 rows at a time stand in shared memory in f32: for the scores
// each lane has one of them, for the sums over them each lane has every 32nd column. These are products without tensor cores,
// so the arithmetic is the floor: 67 TFLOP/s of f32 on an H200. GPT's 64·6 heads of 64, 256², causal: forward 3.2 GF 48 µs,
// d_q 4.8 GF 72 µs, d_k and d_v 6.4 GF 96 µs; reading the factors from shared memory makes it 2 to 4 times as much.

#define GROUP 4
#define WARPS 4
#define ROWS (GROUP * WARPS)
#define TILE 32
// Of 32 columns each.
#define CHUNKS 8
#define INFINITE __int_as_float(0x7F800000)

// The sizes of an attention; strides are those of the rows of queries, of keys and of values.
struct Shape {
    u32 heads, queries, keys, causal;
    float scale;
    u32 q_stride, k_stride, v_stride, width;
};

#define SHAPE \
    u32 heads, u32 queries, u32 keys, u32 causal, float scale, u32 q_stride, u32 k_stride, u32 v_stride, u32 width
#define SHAPE_OF \
    Shape { heads, queries, keys, causal, scale, q_stride, k_stride, v_stride, width }

// Shared memory: 16 rows and 16 rows of the block's own, 32 and 32 of the other side. Rows are filled up with zeros to whole
// chunks, and the other side's are one longer, so that the same column of 32 rows stands in 32 banks.
struct Room {
    u32 padded;
    float *own, *own_second, *other, *other_second, *end;
};

__device__ __forceinline__ Room room_of(float* shared, u32 width) {
    u32 padded = (width + 31) / 32 * 32;
    float *second = shared + ROWS * padded, *other = second + ROWS * padded;
    float *other_second = other + TILE * (padded + 1), *end = other_second + TILE * (padded + 1);
    return Room{padded, shared, second, other, other_second, end};
}

// Rows from `first` on, zeros from `count` on.
__device__ __forceinline__ void read_rows(float* to, u32 to_stride, u32 rows, u32 padded, const T* from, u32 stride, u32 width,
                                          u32 first, u32 count) {
    for (u32 i = threadIdx.x; i < rows * padded; i += 32 * WARPS) {
        u32 row = i / padded, column = i % padded;
        bool there = first + row < count && column < width;
        to[row * to_stride + column] = there ? to_float(from[(u64)(first + row) * stride + column]) : 0.0f;
    }
}

// The products of a warp's 4 rows with the lane's row of the other side.
__device__ __forceinline__ void dots(float (&to)[GROUP], const float* own, const float* other, const Room& room) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    own += warp * GROUP * room.padded;
    other += lane * (room.padded + 1);
#pragma unroll
    for (int r = 0; r < GROUP; r++) to[r] = 0.0f;
    for (u32 column = 0; column < room.padded; column += 4) {
        float theirs[4];
#pragma unroll
        for (int i = 0; i < 4; i++) theirs[i] = other[column + i];
#pragma unroll
        for (int r = 0; r < GROUP; r++) {
            float4 ours = *(const float4*)(own + r * room.padded + column);
            to[r] += ours.x * theirs[0] + ours.y * theirs[1] + ours.z * theirs[2] + ours.w * theirs[3];
        }
    }
}

// sums += weights · rows of the other side, each lane having the weights of its row.
__device__ __forceinline__ void add_rows(float (&sums)[GROUP][CHUNKS], const float (&weights)[GROUP], const float* other,
                                         const Room& room) {
    u32 lane = threadIdx.x % 32;
    for (u32 j = 0; j < TILE; j++) {
        float weight[GROUP];
#pragma unroll
        for (int r = 0; r < GROUP; r++) weight[r] = __shfl_sync(0xFFFFFFFFu, weights[r], j);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            if (32 * c < room.padded) {
                float value = other[j * (room.padded + 1) + 32 * c + lane];
#pragma unroll
                for (int r = 0; r < GROUP; r++) sums[r][c] += weight[r] * value;
            }
        }
    }
}

__device__ __forceinline__ void clear(float (&sums)[GROUP][CHUNKS]) {
#pragma unroll
    for (int r = 0; r < GROUP; r++) {
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) sums[r][c] = 0.0f;
    }
}

// Writes a warp's row times a factor.
__device__ __forceinline__ void write_row(T* to, const float (&sums)[CHUNKS], float factor, u32 width) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        if (32 * c + lane < width) store(to + 32 * c + lane, sums[c] * factor);
    }
}

__device__ __forceinline__ bool sees(const Shape& shape, u32 query, u32 key) {
    return query < shape.queries && key < shape.keys && (!shape.causal || key <= query);
}

// The factor of dropout of a query, whose row among those of all sequences and heads is given, and a key.
__device__ __forceinline__ float keep_of(const Shape& shape, const Dropout& d, u32 time, u64 row, u32 key) {
    return keep1(d, time, row * ((shape.keys + 3) / 4 * 4) + key);
}

// out = (M∘softmax(scale·q·kᵀ + bias))·v. The softmax goes with the largest score so far; what was summed before a larger one
// came is scaled down.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
    attention_forward(SHAPE, const T* q, const T* k, const T* v, const float* bias, T* out, float* logs, DROPOUT(d)) {
    extern __shared__ __align__(16) float shared[];
    Shape shape = SHAPE_OF;
    Dropout drop = DROPOUT_OF(d);
    Room room = room_of(shared, width);
    u32 time = step_of(drop), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // With a causal mask the last queries see most, so they come first.
    u32 tile = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, sequence = blockIdx.z, pair = sequence * heads + head;
    u32 first = tile * ROWS, mine = first + warp * GROUP;
    q += (u64)sequence * queries * q_stride + head * width;
    k += (u64)sequence * keys * k_stride + head * width;
    v += (u64)sequence * keys * v_stride + head * width;
    if (bias) bias += (u64)head * (queries + keys - 1);
    read_rows(room.own, room.padded, ROWS, room.padded, q, q_stride, width, first, queries);

    float sums[GROUP][CHUNKS], most[GROUP], total[GROUP];
    clear(sums);
#pragma unroll
    for (int r = 0; r < GROUP; r++) {
        most[r] = -INFINITE;
        total[r] = 0.0f;
    }
    u32 seen = causal ? min(keys, first + ROWS) : keys;
    for (u32 start = 0; start < seen; start += TILE) {
        __syncthreads();
        read_rows(room.other, room.padded + 1, TILE, room.padded, k, k_stride, width, start, keys);
        read_rows(room.other_second, room.padded + 1, TILE, room.padded, v, v_stride, width, start, keys);
        __syncthreads();
        float weights[GROUP];
        dots(weights, room.own, room.other, room);
#pragma unroll
        for (int r = 0; r < GROUP; r++) {
            u32 query = mine + r, key = start + lane;
            float score = -INFINITE;
            if (sees(shape, query, key)) score = weights[r] * scale + (bias ? bias[queries - 1 - query + key] : 0.0f);
            float now = fmaxf(most[r], warp_max(score));
            // A query that does not exist has seen nothing.
            float down = now == -INFINITE ? 1.0f : expf(most[r] - now);
            weights[r] = score == -INFINITE ? 0.0f : expf(score - now);
            total[r] = total[r] * down + weights[r];
            most[r] = now;
            if (score != -INFINITE) weights[r] *= keep_of(shape, drop, time, (u64)pair * queries + query, key);
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) sums[r][c] *= down;
        }
        add_rows(sums, weights, room.other_second, room);
    }
#pragma unroll
    for (int r = 0; r < GROUP; r++) {
        float all = warp_sum(total[r]);
        if (mine + r < queries) {
            if (lane == 0) logs[(u64)pair * queries + mine + r] = most[r] + logf(all);
            T* to = out + ((u64)sequence * queries + mine + r) * heads * width + head * width;
            write_row(to, sums[r], 1.0f / all, width);
        }
    }
}

// d_q = scale·dS·k with dS = P∘(M∘(d_out·vᵀ) − inner), inner = rowsum(d_out∘out), which is kept for the other kernel. With
// `partial`, the sums of dS along its diagonals: 15 + keys of them for a block, diagonal 15 + key − (query − first query).
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
    attention_backward_queries(SHAPE, const T* q, const T* k, const T* v, const float* bias, const T* out, const T* d_out,
                               const float* logs, float* inner, T* d_q, float* partial, DROPOUT(d)) {
    extern __shared__ __align__(16) float shared[];
    Shape shape = SHAPE_OF;
    Dropout drop = DROPOUT_OF(d);
    Room room = room_of(shared, width);
    // The diagonals of each warp's 4 × 32 numbers.
    float* along = room.end;
    u32 time = step_of(drop), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 tile = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, sequence = blockIdx.z, pair = sequence * heads + head;
    u32 first = tile * ROWS, mine = first + warp * GROUP, row = heads * width;
    q += (u64)sequence * queries * q_stride + head * width;
    k += (u64)sequence * keys * k_stride + head * width;
    v += (u64)sequence * keys * v_stride + head * width;
    out += (u64)sequence * queries * row + head * width;
    d_out += (u64)sequence * queries * row + head * width;
    if (bias) bias += (u64)head * (queries + keys - 1);
    u32 length = keys + ROWS - 1;
    if (partial) {
        partial += (u64)(pair * gridDim.x + tile) * length;
        for (u32 i = threadIdx.x; i < length; i += 32 * WARPS) partial[i] = 0.0f;
    }
    read_rows(room.own, room.padded, ROWS, room.padded, q, q_stride, width, first, queries);
    read_rows(room.own_second, room.padded, ROWS, room.padded, d_out, row, width, first, queries);

    float sums[GROUP][CHUNKS], less[GROUP], log[GROUP];
    clear(sums);
#pragma unroll
    for (int r = 0; r < GROUP; r++) {
        u32 query = mine + r;
        less[r] = log[r] = 0.0f;
        if (query < queries) {
            u64 at = (u64)query * row;
            for (u32 column = lane; column < width; column += 32)
                less[r] += to_float(d_out[at + column]) * to_float(out[at + column]);
            less[r] = warp_sum(less[r]);
            log[r] = logs[(u64)pair * queries + query];
            if (lane == 0) inner[(u64)pair * queries + query] = less[r];
        }
    }
    u32 seen = causal ? min(keys, first + ROWS) : keys;
    for (u32 start = 0; start < seen; start += TILE) {
        __syncthreads();
        read_rows(room.other, room.padded + 1, TILE, room.padded, k, k_stride, width, start, keys);
        read_rows(room.other_second, room.padded + 1, TILE, room.padded, v, v_stride, width, start, keys);
        __syncthreads();
        float scores[GROUP], ds[GROUP];
        dots(scores, room.own, room.other, room);
        dots(ds, room.own_second, room.other_second, room);
#pragma unroll
        for (int r = 0; r < GROUP; r++) {
            u32 query = mine + r, key = start + lane;
            if (sees(shape, query, key)) {
                float score = scores[r] * scale + (bias ? bias[queries - 1 - query + key] : 0.0f);
                float keep = keep_of(shape, drop, time, (u64)pair * queries + query, key);
                ds[r] = expf(score - log[r]) * (keep * ds[r] - less[r]);
            } else {
                ds[r] = 0.0f;
            }
        }
        add_rows(sums, ds, room.other, room);
        if (partial) {
            float* own = along + warp * (TILE + GROUP);
            own[lane] = 0.0f;
            if (lane < GROUP) own[TILE + lane] = 0.0f;
#pragma unroll
            for (int r = 0; r < GROUP; r++) {
                __syncwarp();
                own[lane + GROUP - 1 - r] += ds[r];
            }
            __syncthreads();
            u32 at = threadIdx.x;
            if (at < TILE + ROWS - 1 && start + at < length) {
                float sum = 0.0f;
#pragma unroll
                for (int w = 0; w < WARPS; w++) {
                    int of = (int)at - GROUP * (WARPS - 1 - w);
                    if (of >= 0 && of < TILE + GROUP) sum += along[w * (TILE + GROUP) + of];
                }
                partial[start + at] += sum;
            }
        }
    }
#pragma unroll
    for (int r = 0; r < GROUP; r++) {
        if (mine + r < queries) {
            T* to = d_q + ((u64)sequence * queries + mine + r) * q_stride + head * width;
            write_row(to, sums[r], scale, width);
        }
    }
}

// d_v = (M∘P)ᵀ·d_out and d_k = scale·dSᵀ·q.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 3)
    attention_backward_keys(SHAPE, const T* q, const T* k, const T* v, const float* bias, const T* d_out, const float* logs,
                            const float* inner, T* d_k, T* d_v, DROPOUT(d)) {
    extern __shared__ __align__(16) float shared[];
    Shape shape = SHAPE_OF;
    Dropout drop = DROPOUT_OF(d);
    Room room = room_of(shared, width);
    u32 time = step_of(drop), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 head = blockIdx.y, sequence = blockIdx.z, pair = sequence * heads + head;
    u32 first = blockIdx.x * ROWS, mine = first + warp * GROUP, row = heads * width;
    q += (u64)sequence * queries * q_stride + head * width;
    k += (u64)sequence * keys * k_stride + head * width;
    v += (u64)sequence * keys * v_stride + head * width;
    d_out += (u64)sequence * queries * row + head * width;
    if (bias) bias += (u64)head * (queries + keys - 1);
    read_rows(room.own, room.padded, ROWS, room.padded, k, k_stride, width, first, keys);
    read_rows(room.own_second, room.padded, ROWS, room.padded, v, v_stride, width, first, keys);

    float d_keys[GROUP][CHUNKS], d_values[GROUP][CHUNKS];
    clear(d_keys);
    clear(d_values);
    for (u32 start = causal ? first / TILE * TILE : 0; start < queries; start += TILE) {
        __syncthreads();
        read_rows(room.other, room.padded + 1, TILE, room.padded, q, q_stride, width, start, queries);
        read_rows(room.other_second, room.padded + 1, TILE, room.padded, d_out, row, width, start, queries);
        __syncthreads();
        float weights[GROUP], ds[GROUP];
        dots(weights, room.own, room.other, room);
        dots(ds, room.own_second, room.other_second, room);
        u32 query = start + lane;
        u64 at = (u64)pair * queries + query;
        float log = query < queries ? logs[at] : 0.0f, less = query < queries ? inner[at] : 0.0f;
#pragma unroll
        for (int r = 0; r < GROUP; r++) {
            u32 key = mine + r;
            if (sees(shape, query, key)) {
                float score = weights[r] * scale + (bias ? bias[queries - 1 - query + key] : 0.0f);
                float keep = keep_of(shape, drop, time, at, key), weight = expf(score - log);
                ds[r] = weight * (keep * ds[r] - less);
                weights[r] = weight * keep;
            } else {
                ds[r] = weights[r] = 0.0f;
            }
        }
        add_rows(d_values, weights, room.other_second, room);
        add_rows(d_keys, ds, room.other, room);
    }
#pragma unroll
    for (int r = 0; r < GROUP; r++) {
        if (mine + r < keys) {
            u64 at = (u64)sequence * keys + mine + r;
            write_row(d_k + at * k_stride + head * width, d_keys[r], scale, width);
            write_row(d_v + at * v_stride + head * width, d_values[r], 1.0f, width);
        }
    }
}

// Adds the blocks' sums along diagonals to the gradient of the biases: blocks of `rows` queries, each with `rows` − 1 + keys
// diagonals. Of each diagonal, 32 warps sum a part of the blocks, and the first adds these up in order.
extern "C" __global__ void __launch_bounds__(1024)
    attention_backward_bias(float* d_bias, const float* partial, u32 batch, u32 heads, u32 queries, u32 keys, u32 rows) {
    __shared__ float parts[32][32];
    u32 offset = blockIdx.x * 32 + threadIdx.x % 32, head = blockIdx.y, warp = threadIdx.x / 32;
    u32 offsets = queries + keys - 1, tiles = (queries + rows - 1) / rows, length = keys + rows - 1;
    float sum = 0.0f;
    for (u32 tile = 0; tile < tiles; tile++) {
        int at = (int)(offset + rows + tile * rows) - (int)queries;
        if (offset >= offsets || at < 0 || at >= (int)length) continue;
        const float* from = partial + (head * tiles + tile) * length + at;
#pragma unroll 4
        for (u32 sequence = warp; sequence < batch; sequence += 32) sum += from[(u64)sequence * heads * tiles * length];
    }
    parts[warp][threadIdx.x % 32] = sum;
    __syncthreads();
    if (warp == 0 && offset < offsets) {
#pragma unroll
        for (int w = 1; w < 32; w++) sum += parts[w][threadIdx.x];
        d_bias[(u64)head * offsets + offset] += sum;
    }
}
