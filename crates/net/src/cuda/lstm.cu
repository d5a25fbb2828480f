// The kernels of lstm.rs.
//
// The paper's shape (80 sequences, 70 positions, 400 -> 1150 -> 1150 -> 400) on an H200, bf16, as estimated from its data sheet.
// What does not depend on the position before is cuBLASLt's: 0.43 TFLOP a step, 0.6 ms at 700 TFLOP/s. What does, for a position,
// a direction and a layer of 1150 units:
//   FLOP                80·4600·1150·2 = 0.85 G: 1.4 us at what mma.sync reaches (60 % of the peak)
//   the matrix          10.6 MB in bf16: 2.2 us from memory, 1.9 us from L2; nothing where it stays in shared memory (30 MB in all)
//   the state           h, 184 KB, to every block that needs all of it
//   the blocks' wait    1 to 2 us: who writes h, a fence, a count in L2, who reads it
// A product and a kernel for each position are two launches and read the matrix anew. So all positions are one kernel. Each of
// 116 blocks has 20 units with their four gates, 184 KB of the matrix, and half of the sequences: with all sequences a block
// would need half of the rows but twice the state, 21 MB a position through L2 instead of 10.7 (1.9 us).
// Backward: e has four times the numbers of h, and if every block read all of its sequences' it would be 43 MB, 7.8 us. So four
// blocks are a team, of which each multiplies with one gate's rows for all of the team's 80 units (again 184 KB and 10.7 MB), and
// they exchange their sums through L2: 1.2 MB and one more wait, between four.
// Within a block the warps share k: then every number of the matrix and the state is read once, for 25 tiles of 16 × 8 sums in
// registers, and 102 KB of sums go through shared memory at the end (1600 clocks, beside the 2900 of mma.sync).

// ---- Matrices with padded rows ----

// `to = M o from` with rows of `stride` numbers, zeros at their ends. A thread takes four numbers of `from`; `count` is how many
// times four it has.
extern "C" __global__ void lstm_mask(const float* from, T* to, u32 count, u32 columns, u32 stride, DROPOUT(drop)) {
    Dropout drop = DROPOUT_OF(drop);
    u32 block = blockIdx.x * blockDim.x + threadIdx.x;
    if (block >= count) return;
    Four weights = load4(from + 4 * (u64)block), keep = keep4(drop, step_of(drop), block);
    u32 row = (u32)(4 * (u64)block / columns), column = (u32)(4 * (u64)block % columns);
    for (u32 i = 0; i < 4; i++) {
        T* start = to + (u64)row * stride;
        store(start + column, weights.v[i] * keep.v[i]);
        if (++column == columns) {
            for (; column < stride; column++) store(start + column, 0.0f);
            column = 0;
            row++;
        }
    }
}

// Backward: `to = M o from`, where `from` has the padded rows.
extern "C" __global__ void lstm_mask_gradient(const float* from, float* to, u32 count, u32 columns, u32 stride, DROPOUT(drop)) {
    Dropout drop = DROPOUT_OF(drop);
    u32 block = blockIdx.x * blockDim.x + threadIdx.x;
    if (block >= count) return;
    Four keep = keep4(drop, step_of(drop), block);
    u32 row = (u32)(4 * (u64)block / columns), column = (u32)(4 * (u64)block % columns);
    for (u32 i = 0; i < 4; i++) {
        keep.v[i] *= from[(u64)row * stride + column];
        if (++column == columns) {
            column = 0;
            row++;
        }
    }
    store4(to + 4 * (u64)block, keep);
}

// Rows of `columns` numbers become rows of `stride`, a multiple of four, with zeros at their ends.
extern "C" __global__ void lstm_pad(const T* from, T* to, u32 rows, u32 columns, u32 stride) {
    u32 at = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (at >= rows * stride) return;
    u32 row = at / stride, column = at % stride;
    Four four;
    for (u32 i = 0; i < 4; i++) four.v[i] = column + i < columns ? to_float(from[row * columns + column + i]) : 0.0f;
    store4(to + at, four);
}

// Padded rows become rows without gaps.
extern "C" __global__ void lstm_unpad(const T* from, T* to, u32 rows, u32 columns, u32 stride) {
    u32 at = 4 * (blockIdx.x * blockDim.x + threadIdx.x), end = rows * columns;
    if (at >= end) return;
    Four four;
    for (u32 i = 0; i < 4; i++) {
        u32 next = at + i;
        four.v[i] = next < end ? to_float(from[next / columns * stride + next % columns]) : 0.0f;
    }
    if (at + 4 <= end) {
        store4(to + at, four);
    } else {
        for (u32 i = 0; at + i < end; i++) store(to + at + i, four.v[i]);
    }
}

// ---- One unit of one sequence ----

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Turns the arguments of the gates into i, f, g and o, and `cell` into the next one; returns h.
__device__ __forceinline__ float lstm_activate(float gates[4], float& cell) {
    gates[0] = sigmoid(gates[0]);
    gates[1] = sigmoid(gates[1]);
    gates[2] = tanhf(gates[2]);
    gates[3] = sigmoid(gates[3]);
    cell = fmaf(gates[1], cell, gates[0] * gates[2]);
    return gates[3] * tanhf(cell);
}

// Backward: turns the gates into the gradient of their arguments, and the gradient of the cell into that of the one before.
__device__ __forceinline__ void lstm_activate_backward(float gates[4], float before, float cell, float d_h, float& d_cell) {
    float i = gates[0], f = gates[1], g = gates[2], o = gates[3], squashed = tanhf(cell);
    float d = d_cell + d_h * o * (1.0f - squashed * squashed);
    gates[0] = d * g * i * (1.0f - i);
    gates[1] = d * before * f * (1.0f - f);
    gates[2] = d * i * (1.0f - g * g);
    gates[3] = d_h * squashed * o * (1.0f - o);
    d_cell = d * f;
}

// ---- Position by position: the product with the hidden-to-hidden matrix is cuBLASLt's ----

// The state before the first position.
extern "C" __global__ void lstm_begin(const float* carry, float* cells, T* out, T* state, u32 batch, u32 hidden, u32 stride) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= batch * hidden) return;
    store(out + at, carry[at]);
    store(state + at / hidden * stride + at % hidden, carry[at]);
    cells[at] = carry[batch * hidden + at];
}

// The state after the last one.
extern "C" __global__ void lstm_end(float* carry, const float* cells, const T* out, u32 count) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    carry[at] = to_float(out[at]);
    carry[count + at] = cells[at];
}

// What follows the product `sums`. `cells` and `out` begin with the position before; `state` is a copy of h with padded rows.
extern "C" __global__ void lstm_position(const float* sums, const float* input_bias, const float* hidden_bias, T* gates,
                                         float* cells, T* out, T* state, u32 batch, u32 hidden, u32 stride) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= batch * hidden) return;
    u32 row = at / hidden, unit = at % hidden, first = row * 4 * hidden + unit;
    float values[4], cell = cells[at];
    for (u32 gate = 0; gate < 4; gate++) {
        u32 of = gate * hidden, bias = of + unit;
        values[gate] = to_float(gates[first + of]) + (input_bias[bias] + hidden_bias[bias]) + sums[first + of];
    }
    float h = lstm_activate(values, cell);
    for (u32 gate = 0; gate < 4; gate++) store(gates + first + gate * hidden, values[gate]);
    cells[batch * hidden + at] = cell;
    store(out + batch * hidden + at, h);
    store(state + row * stride + unit, h);
}

// Backward; `sums` came from the position after, where there is one.
extern "C" __global__ void lstm_position_backward(const float* sums, T* gates, const float* cells, const T* d_out, float* d_cells,
                                                  u32 batch, u32 hidden, u32 stride, bool last) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= batch * hidden) return;
    u32 row = at / hidden, unit = at % hidden, first = row * 4 * hidden + unit;
    float values[4], d_h = to_float(d_out[at]), d_cell = last ? 0.0f : d_cells[at];
    if (!last) d_h += sums[row * stride + unit];
    for (u32 gate = 0; gate < 4; gate++) values[gate] = to_float(gates[first + gate * hidden]);
    lstm_activate_backward(values, cells[at], cells[batch * hidden + at], d_h, d_cell);
    for (u32 gate = 0; gate < 4; gate++) store(gates + first + gate * hidden, values[gate]);
    d_cells[at] = d_cell;
}

// ---- The gradient of the biases ----

// Sums of `each` rows, a block of rows for each y of the grid; a thread has four columns.
extern "C" __global__ void lstm_bias_partial(const T* e, float* partial, u32 rows, u32 columns, u32 each) {
    u32 column = 4 * (blockIdx.x * blockDim.x + threadIdx.x), from = blockIdx.y * each, to = min(from + each, rows);
    if (column >= columns) return;
    Four sums = {{0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll 4
    for (u32 row = from; row < to; row++) {
        Four x = load4(e + (u64)row * columns + column);
        for (u32 i = 0; i < 4; i++) sums.v[i] += x.v[i];
    }
    store4(partial + (u64)blockIdx.y * columns + column, sums);
}

// Both biases have the same gradient.
extern "C" __global__ void lstm_bias(const float* partial, float* input_bias, float* hidden_bias, u32 parts, u32 columns) {
    u32 column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    float sum = 0.0f;
#pragma unroll 8
    for (u32 part = 0; part < parts; part++) sum += partial[(u64)part * columns + column];
    input_bias[column] = sum;
    hidden_bias[column] = sum;
}

#if BF16
// ---- All positions in one kernel, the hidden-to-hidden matrix in shared memory ----

constexpr u32 WARPS = 8, THREADS = 32 * WARPS;
// Tiles of 8 sequences that a block has at most.
constexpr u32 TILES = 5;
// From row to row of a block's sums; odd, so that columns are spread over the banks.
constexpr u32 SUMS = 8 * TILES + 1;
// Numbers of a row of the matrix that a warp takes at a time, and how many such chunks of the state are on their way to it.
constexpr u32 CHUNK = 32, AHEAD = 3;

__device__ __forceinline__ uint4* shared_memory() {
    extern __shared__ uint4 lstm_shared[];
    return lstm_shared;
}

// c += a·b over 16 × 8 numbers and 16 products each.
__device__ __forceinline__ void multiply(float c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Reads what another block may have written in this kernel: not from the multiprocessor's own cache.
__device__ __forceinline__ uint4 load_fresh(const uint4* from) {
    uint4 x;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from) : "memory");
    return x;
}

__device__ __forceinline__ float load_fresh(const float* from) {
    float x;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
    return x;
}

// One more has arrived; what this block wrote before its last __syncthreads can be seen by who sees the count.
__device__ __forceinline__ void count_up(u32* counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ __forceinline__ u32 read_count(const u32* counter) {
    u32 count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    return count;
}

// Says that all threads of this block have written what they had to.
__device__ __forceinline__ void arrive(u32* counter) {
    __syncthreads();
    if (threadIdx.x == 0) count_up(counter);
}

// Waits until so many blocks have arrived.
__device__ __forceinline__ void await(const u32* counter, u32 blocks) {
    if (threadIdx.x == 0) {
        while (read_count(counter) < blocks) {
        }
    }
    __syncthreads();
}

// A block's part of shared memory, for M tiles of 16 rows of the matrix.
template <u32 M>
struct Room {
    uint4* weights;
    float4* partial;
    float* sums;
    float* bias;

    __device__ __forceinline__ Room(u32 chunks) {
        weights = shared_memory();
        partial = (float4*)(weights + chunks * M * 64);
        sums = (float*)(partial + WARPS * TILES * 32);
        bias = sums + 16 * M * SUMS;
    }
};

// Where the eight numbers from column 8·piece on of a row of the matrix stand in shared memory: a lane finds what it multiplies in
// one place, and the lanes of a warp side by side. In which order k is summed does not matter as long as both factors agree: lane
// 4g + p of a warp has numbers 8p to 8p + 7 of each chunk, the first four for one instruction and the others for the next.
template <u32 M>
__device__ __forceinline__ u32 weight_place(u32 row, u32 piece) {
    u32 chunk = piece / 4, tile = row / 16, half = row / 8 % 2;
    return ((chunk * M + tile) * 2 + half) * 32 + row % 8 * 4 + piece % 4;
}

// Reads `count` pieces and then writes them, several at a time: so many reads are on their way at once.
template <class Read, class Write>
__device__ __forceinline__ void copy_pieces(u32 count, Read read, Write write) {
    constexpr u32 EACH = 8;
    for (u32 first = threadIdx.x; first < count; first += EACH * THREADS) {
        uint4 pieces[EACH];
#pragma unroll
        for (u32 i = 0; i < EACH; i++)
            if (first + i * THREADS < count) pieces[i] = read(first + i * THREADS);
#pragma unroll
        for (u32 i = 0; i < EACH; i++)
            if (first + i * THREADS < count) write(first + i * THREADS, pieces[i]);
    }
}

// sums[row][s] = the product of row `row` of the matrix and sequence s, for 16·M rows and 8·tiles sequences. Warps share the
// chunks, and their sums are added in order. It ends with a __syncthreads.
template <u32 M>
__device__ __forceinline__ void lstm_product(const Room<M>& room, const bf16* state, u32 stride, u32 chunks, u32 tiles) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bf16* from = state + lane / 4 * stride + lane % 4 * 8;
    uint4 ahead[AHEAD][TILES];
    float c[M][TILES][4];
#pragma unroll
    for (u32 m = 0; m < M; m++)
#pragma unroll
        for (u32 n = 0; n < TILES; n++) c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0.0f;
    auto fetch = [&](uint4 to[TILES], u32 chunk) {
        if (chunk >= chunks) return;
#pragma unroll
        for (u32 n = 0; n < TILES; n++)
            if (n < tiles) to[n] = load_fresh((const uint4*)(from + 8 * n * stride + CHUNK * chunk));
    };
#pragma unroll
    for (u32 i = 0; i < AHEAD; i++) fetch(ahead[i], warp + i * WARPS);
#pragma unroll 1
    for (u32 chunk = warp; chunk < chunks; chunk += WARPS) {
#pragma unroll
        for (u32 m = 0; m < M; m++) {
            const uint4* weights = room.weights + (chunk * M + m) * 64 + lane;
            uint4 upper = weights[0], lower = weights[32];
#pragma unroll
            for (u32 n = 0; n < TILES; n++) {
                if (n < tiles) {
                    uint4 x = ahead[0][n];
                    multiply(c[m][n], upper.x, lower.x, upper.y, lower.y, x.x, x.y);
                    multiply(c[m][n], upper.z, lower.z, upper.w, lower.w, x.z, x.w);
                }
            }
        }
#pragma unroll
        for (u32 i = 0; i + 1 < AHEAD; i++)
#pragma unroll
            for (u32 n = 0; n < TILES; n++) ahead[i][n] = ahead[i + 1][n];
        fetch(ahead[AHEAD - 1], chunk + AHEAD * WARPS);
    }
#pragma unroll
    for (u32 m = 0; m < M; m++) {
#pragma unroll
        for (u32 n = 0; n < TILES; n++)
            if (n < tiles)
                room.partial[(warp * TILES + n) * 32 + lane] = make_float4(c[m][n][0], c[m][n][1], c[m][n][2], c[m][n][3]);
        __syncthreads();
        if (warp < tiles) {
            float4 sum = room.partial[threadIdx.x];
#pragma unroll
            for (u32 other = 1; other < WARPS; other++) {
                float4 x = room.partial[other * TILES * 32 + threadIdx.x];
                sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
            }
            float* to = room.sums + (16 * m + lane / 4) * SUMS + 8 * warp + lane % 4 * 2;
            to[0] = sum.x, to[1] = sum.y, to[8 * SUMS] = sum.z, to[8 * SUMS + 1] = sum.w;
        }
        __syncthreads();
    }
}

// What a thread has in all positions: up to `COUNT` pairs of a unit and a sequence of its block, which has 4·M units.
template <u32 M>
struct Items {
    static constexpr u32 UNITS = 4 * M, COUNT = (UNITS * 8 * TILES + THREADS - 1) / THREADS;
    u32 first_unit, first_row, hidden, batch, tiles;

    __device__ __forceinline__ u32 index(u32 i) const { return threadIdx.x + i * THREADS; }
    // Counted in the block.
    __device__ __forceinline__ u32 block_unit(u32 i) const { return index(i) % UNITS; }
    __device__ __forceinline__ u32 block_row(u32 i) const { return index(i) / UNITS; }
    // Counted in all.
    __device__ __forceinline__ u32 unit(u32 i) const { return first_unit + block_unit(i); }
    __device__ __forceinline__ u32 row(u32 i) const { return first_row + block_row(i); }
    __device__ __forceinline__ bool is(u32 i) const { return block_row(i) < 8 * tiles && row(i) < batch && unit(i) < hidden; }
};

// A block has 4·M units with their four gates, and 8·tiles sequences. `weight` has rows of `stride` numbers, `state` room for two
// times all groups' sequences with rows of whole chunks, zeros at their ends.
template <u32 M>
__device__ __forceinline__ void lstm_forward(const bf16* weight, u32 stride, const float* input_bias, const float* hidden_bias,
                                             float* carry, bf16* gates, float* cells, bf16* out, bf16* state, u32* counters,
                                             u32 time, u32 batch, u32 hidden, u32 tiles) {
    u32 chunks = (hidden + CHUNK - 1) / CHUNK, length = CHUNK * chunks, count = batch * hidden;
    u32 rows = 8 * tiles, half = gridDim.y * rows * length;
    u32* counter = counters + 32 * blockIdx.y;
    Room<M> room(chunks);
    Items<M> items{blockIdx.x * Items<M>::UNITS, blockIdx.y * rows, hidden, batch, tiles};
    constexpr u32 UNITS = Items<M>::UNITS, COUNT = Items<M>::COUNT;

    u32 pieces = 4 * chunks;
    auto read = [&](u32 at) {
        u32 row = at / pieces, piece = at % pieces, gate = row / UNITS, unit = items.first_unit + row % UNITS;
        if (unit >= hidden || 8 * piece >= stride) return make_uint4(0, 0, 0, 0);
        return *(const uint4*)(weight + (u64)(gate * hidden + unit) * stride + 8 * piece);
    };
    auto write = [&](u32 at, uint4 x) { room.weights[weight_place<M>(at / pieces, at % pieces)] = x; };
    copy_pieces(16 * M * pieces, read, write);
    for (u32 at = threadIdx.x; at < 16 * M; at += THREADS) {
        u32 unit = items.first_unit + at % UNITS, bias = at / UNITS * hidden + unit;
        room.bias[at] = unit < hidden ? input_bias[bias] + hidden_bias[bias] : 0.0f;
    }
    float cell[COUNT], h[COUNT], values[COUNT][4];
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        if (!items.is(i)) continue;
        u32 at = items.row(i) * hidden + items.unit(i);
        cell[i] = cells[at] = carry[count + at];
        h[i] = carry[at];
        store(out + at, h[i]);
        store(state + items.row(i) * length + items.unit(i), h[i]);
    }
    arrive(counter);

#pragma unroll 1
    for (u32 position = 0; position < time; position++) {
        bf16* position_gates = gates + (u64)position * 4 * count;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            if (!items.is(i)) continue;
            const bf16* from = position_gates + items.row(i) * 4 * hidden + items.unit(i);
#pragma unroll
            for (u32 gate = 0; gate < 4; gate++) values[i][gate] = to_float(from[gate * hidden]);
        }
        await(counter, gridDim.x * (position + 1));
        lstm_product<M>(room, state + position % 2 * half + items.first_row * length, length, chunks, tiles);
        bf16* next = state + (position + 1) % 2 * half;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            if (!items.is(i)) continue;
#pragma unroll
            for (u32 gate = 0; gate < 4; gate++) {
                u32 row = gate * UNITS + items.block_unit(i);
                values[i][gate] += room.bias[row] + room.sums[row * SUMS + items.block_row(i)];
            }
            h[i] = lstm_activate(values[i], cell[i]);
            store(next + items.row(i) * length + items.unit(i), h[i]);
        }
        arrive(counter);
        // Nobody waits for the rest.
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            if (!items.is(i)) continue;
            u32 row = items.row(i), unit = items.unit(i);
            u64 at = (u64)(position + 1) * count + row * hidden + unit;
#pragma unroll
            for (u32 gate = 0; gate < 4; gate++) store(position_gates + (row * 4 + gate) * hidden + unit, values[i][gate]);
            store(out + at, h[i]);
            cells[at] = cell[i];
        }
    }
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        if (!items.is(i)) continue;
        u32 at = items.row(i) * hidden + items.unit(i);
        carry[at] = rounded<bf16>(h[i]);
        carry[count + at] = cell[i];
    }
}

// Four blocks, one for each gate, have 16·M units together: each multiplies with its gate's rows of the matrix, and finishes a
// quarter of the units with what the others found. So every block reads a quarter of e and not all of it. `state` holds e, two
// times all groups' sequences with four rows of whole chunks each, zeros at their ends.
template <u32 M>
__device__ __forceinline__ void lstm_backward(const bf16* weight, u32 stride, bf16* gates, const float* cells, const bf16* d_out,
                                              bf16* state, float* exchange, u32* counters, u32 time, u32 batch, u32 hidden,
                                              u32 tiles) {
    u32 chunks = (hidden + CHUNK - 1) / CHUNK, length = CHUNK * chunks, count = batch * hidden;
    u32 rows = 8 * tiles, half = gridDim.z * rows * 4 * length;
    u32 own = blockIdx.x, team = blockIdx.z * gridDim.y + blockIdx.y;
    u32 *counter = counters + 32 * blockIdx.z, *team_counter = counters + 32 * (gridDim.z + team);
    constexpr u32 UNITS = Items<M>::UNITS, COUNT = Items<M>::COUNT, PART = UNITS * 8 * TILES;
    Room<M> room(chunks);
    u32 first = blockIdx.y * 4 * UNITS;
    Items<M> items{first + own * UNITS, blockIdx.z * rows, hidden, batch, tiles};
    // What gate `from` found for the units that gate `to` finishes.
    auto part = [&](u32 from, u32 to) { return exchange + ((u64)(team * 4 + from) * 4 + to) * PART; };

    // Columns of the matrix become rows of the factor.
    auto read = [&](u32 at) {
        u32 k = at % length, column = first + at / length * 8;
        if (k >= hidden || column >= stride) return make_uint4(0, 0, 0, 0);
        return *(const uint4*)(weight + (u64)(own * hidden + k) * stride + column);
    };
    auto write = [&](u32 at, uint4 x) {
        u32 k = at % length, row = at / length * 8, words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            u16* to = (u16*)(room.weights + weight_place<M>(row + i, k / 8)) + k % 8;
            *to = (u16)(words[i / 2] >> 16 * (i % 2));
        }
    };
    copy_pieces(length * 2 * M, read, write);
    float cell[COUNT], d_cell[COUNT], before[COUNT], d_h[COUNT], values[COUNT][4];
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
        d_cell[i] = 0.0f;
        if (items.is(i)) cell[i] = cells[(u64)time * count + items.row(i) * hidden + items.unit(i)];
    }
    __syncthreads();

#pragma unroll 1
    for (u32 step = 0; step < time; step++) {
        u32 position = time - 1 - step;
        bf16* position_gates = gates + (u64)position * 4 * count;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            if (!items.is(i)) continue;
            u32 row = items.row(i), unit = items.unit(i);
            u64 at = (u64)position * count + row * hidden + unit;
#pragma unroll
            for (u32 gate = 0; gate < 4; gate++) values[i][gate] = to_float(position_gates[(row * 4 + gate) * hidden + unit]);
            before[i] = cells[at];
            d_h[i] = to_float(d_out[at]);
        }
        if (step > 0) {
            await(counter, 4 * gridDim.y * step);
            const bf16* from = state + step % 2 * half + (items.first_row * 4 + own) * length;
            lstm_product<M>(room, from, 4 * length, chunks, tiles);
            for (u32 at = threadIdx.x; at < 3 * UNITS * rows; at += THREADS) {
                u32 to = at / (UNITS * rows), item = at % (UNITS * rows);
                to += to >= own;
                part(own, to)[item] = room.sums[(to * UNITS + item % UNITS) * SUMS + item / UNITS];
            }
            arrive(team_counter);
            await(team_counter, 4 * step);
#pragma unroll
            for (u32 i = 0; i < COUNT; i++) {
                if (!items.is(i)) continue;
                float sum = 0.0f;
#pragma unroll
                for (u32 gate = 0; gate < 4; gate++) {
                    const float* here = room.sums + (own * UNITS + items.block_unit(i)) * SUMS + items.block_row(i);
                    sum += gate == own ? *here : load_fresh(part(gate, own) + items.index(i));
                }
                d_h[i] += sum;
            }
        }
        bf16* next = state + (step + 1) % 2 * half;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            if (!items.is(i)) continue;
            lstm_activate_backward(values[i], before[i], cell[i], d_h[i], d_cell[i]);
            cell[i] = before[i];
#pragma unroll
            for (u32 gate = 0; gate < 4; gate++) store(next + (items.row(i) * 4 + gate) * length + items.unit(i), values[i][gate]);
        }
        arrive(counter);
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            if (!items.is(i)) continue;
#pragma unroll
            for (u32 gate = 0; gate < 4; gate++)
                store(position_gates + (items.row(i) * 4 + gate) * hidden + items.unit(i), values[i][gate]);
        }
    }
}

#define LSTM(M)                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                                       \
        lstm_forward_##M(const bf16* weight, u32 stride, const float* input_bias, const float* hidden_bias, float* carry,          \
                         bf16* gates, float* cells, bf16* out, bf16* state, u32* counters, u32 time, u32 batch, u32 hidden,        \
                         u32 tiles) {                                                                                              \
        lstm_forward<M>(weight, stride, input_bias, hidden_bias, carry, gates, cells, out, state, counters, time, batch, hidden,   \
                        tiles);                                                                                                    \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                                       \
        lstm_backward_##M(const bf16* weight, u32 stride, bf16* gates, const float* cells, const bf16* d_out, bf16* state,         \
                          float* exchange, u32* counters, u32 time, u32 batch, u32 hidden, u32 tiles) {                            \
        lstm_backward<M>(weight, stride, gates, cells, d_out, state, exchange, counters, time, batch, hidden, tiles);              \
    }

LSTM(1)
LSTM(2)
LSTM(3)
LSTM(4)
LSTM(5)
#endif
