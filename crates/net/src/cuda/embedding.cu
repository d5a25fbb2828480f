// The kernels of embedding.rs: rows of a table by id, with positions added, and the backward pass.
//
// Bound by memory: forward writes the rows, backward reads them, 13 MB (3 µs) each at the paper's GPT shape.

// out[r] = M_d ∘ (m_id · E[id] + P[r mod positions]), V numbers at a time.
template <int V>
__device__ void embed(const float* table, const float* positions, u32 used, const u32* ids, u32 rows, u32 width, T* out, Dropout rows_d,
                      Dropout d) {
    u32 i = V * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= rows * width) return;
    u32 row = i / width, column = i % width, id = ids[row];
    float keep_row = keep1(rows_d, step_of(rows_d), id);
    u64 mask = (u64)(row % d.period) * width + column;
    const float* from = table + (u64)id * width + column;
    const float* position = positions + (u64)(row % used) * width + column;
    if (V == 4) {
        Four x = load4(from), keep = keep4(d, step_of(d), mask / 4), p = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (positions) p = load4(position);
        for (int k = 0; k < 4; k++) x.v[k] = keep.v[k] * (keep_row * x.v[k] + p.v[k]);
        store4(out + i, x);
    } else {
        store(out + i, keep1(d, step_of(d), mask) * (keep_row * *from + (positions ? *position : 0.0f)));
    }
}

extern "C" __global__ void embed_4(const float* table, const float* positions, u32 used, const u32* ids, u32 rows, u32 width, T* out,
                                   DROPOUT(r), DROPOUT(d)) {
    embed<4>(table, positions, used, ids, rows, width, out, DROPOUT_OF(r), DROPOUT_OF(d));
}
extern "C" __global__ void embed_1(const float* table, const float* positions, u32 used, const u32* ids, u32 rows, u32 width, T* out,
                                   DROPOUT(r), DROPOUT(d)) {
    embed<1>(table, positions, used, ids, rows, width, out, DROPOUT_OF(r), DROPOUT_OF(d));
}

// m_id at its own column, 0 elsewhere: its transpose times the rows' gradient is the table's.
extern "C" __global__ void one_hot(const u32* ids, u32 rows, u32 columns, T* out, DROPOUT(r)) {
    Dropout r = DROPOUT_OF(r);
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    u32 id = ids[i / columns];
    store(out + i, i % columns == id ? keep1(r, step_of(r), id) : 0.0f);
}

// dP[p] = Σ of the rows at position p; rows of dP that are not used become 0. Eight lanes take every eighth row of 32 groups of V
// columns each, and their sums are added in order.
template <int V>
__device__ void sum_positions(const T* from, u32 rows, u32 used, u32 all, u32 width, float* to) {
    __shared__ Four room[8][32];
    u32 column = threadIdx.x % 32, lane = threadIdx.x / 32;
    u32 i = V * (blockIdx.x * 32 + column), position = i / width;
    Four sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (position < used && i < all * width) {
#pragma unroll 8
        for (u32 row = position + lane * used; row < rows; row += 8 * used) {
            const T* at = from + (u64)row * width + i % width;
            if (V == 4) {
                Four x = load4(at);
                for (int k = 0; k < 4; k++) sum.v[k] += x.v[k];
            } else {
                sum.v[0] += to_float(*at);
            }
        }
    }
    room[lane][column] = sum;
    __syncthreads();
    if (lane > 0 || i >= all * width) return;
    for (int other = 1; other < 8; other++)
        for (int k = 0; k < 4; k++) sum.v[k] += room[other][column].v[k];
    if (V == 4)
        store4(to + i, sum);
    else
        to[i] = sum.v[0];
}

extern "C" __global__ void position_sums_4(const T* from, u32 rows, u32 used, u32 all, u32 width, float* to) {
    sum_positions<4>(from, rows, used, all, width, to);
}
extern "C" __global__ void position_sums_1(const T* from, u32 rows, u32 used, u32 all, u32 width, float* to) {
    sum_positions<1>(from, rows, used, all, width, to);
}

// For a large table. A block has IDS rows of the table: it looks through all ids, lists the places of its own in order, and its
// threads, each with columns of its own, add those rows up.
#define IDS 8
#define LISTED 4096

extern "C" __global__ void __launch_bounds__(256) embed_backward(const u32* ids, u32 rows, const T* d_out, u32 vocabulary, u32 width,
                                                                 float* d_table, DROPOUT(r), DROPOUT(d)) {
    Dropout r = DROPOUT_OF(r), d = DROPOUT_OF(d);
    __shared__ u32 list[LISTED];
    __shared__ u32 starts[9];
    u32 first = blockIdx.x * IDS, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 step = step_of(d);
    for (u32 from = 0; from < rows; from += LISTED) {
        // Each warp counts its part of these rows, then writes behind the warps before it.
        u32 end = from + LISTED < rows ? from + LISTED : rows;
        u32 part = (LISTED / 8), begin = from + warp * part, stop = begin + part < end ? begin + part : end;
        u32 count = 0;
        for (u32 row = begin + lane; row - lane < stop; row += 32) {
            bool mine = row < stop && ids[row] - first < IDS;
            count += __popc(__ballot_sync(0xFFFFFFFFu, mine));
        }
        __syncthreads();
        if (lane == 0) starts[warp + 1] = count;
        __syncthreads();
        if (threadIdx.x == 0) {
            starts[0] = 0;
            for (int i = 1; i <= 8; i++) starts[i] += starts[i - 1];
        }
        __syncthreads();
        u32 at = starts[warp];
        for (u32 row = begin + lane; row - lane < stop; row += 32) {
            bool mine = row < stop && ids[row] - first < IDS;
            u32 votes = __ballot_sync(0xFFFFFFFFu, mine);
            if (mine) list[at + __popc(votes & ((1u << lane) - 1u))] = row;
            at += __popc(votes);
        }
        __syncthreads();
        u32 listed = starts[8];
        if (listed > 0) {
            for (u32 column = threadIdx.x; column < width; column += blockDim.x) {
                float sums[IDS];
#pragma unroll
                for (int k = 0; k < IDS; k++) sums[k] = 0.0f;
#pragma unroll 4
                for (u32 i = 0; i < listed; i++) {
                    u32 row = list[i], id = ids[row] - first;
                    float value = to_float(d_out[(u64)row * width + column]);
                    value *= keep1(d, step, (u64)(row % d.period) * width + column);
#pragma unroll
                    for (int k = 0; k < IDS; k++) sums[k] += id == k ? value : 0.0f;
                }
#pragma unroll
                for (int k = 0; k < IDS; k++)
                    if (first + k < vocabulary && sums[k] != 0.0f)
                        d_table[(u64)(first + k) * width + column] += keep1(r, step_of(r), first + k) * sums[k];
            }
        }
        __syncthreads();
    }
}
