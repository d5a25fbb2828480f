// Attention for bf16 and heads of 32, 64 or 128, with the tensor cores; attention.cu has the kernels for everything else.
//
// A block has 4 warps and 128 queries (or keys), 64 in wide heads; a warp has 32 of them, or 16, whose scores with 32 keys (or
// queries) at a time live in registers only. What a warp loads from shared memory serves all its rows: with 16 it would be the
// loads that take longest, not the products. What a warp's scores become is at once, register by register, the first factor of
// its next product (the accumulators of two products 8 wide are laid out like one factor 16 wide), so that nothing is exchanged
// between warps. Tiles of 64 rows of the other side come through shared memory, the next one on its way while this one is worked
// on. Rows there are 16 bytes longer than they need be: eight of them then start in different banks.
//
// The backward pass computes the scores twice: a kernel that owns queries writes d_q, one that owns keys writes d_k and d_v. That is
// 7 products instead of 5, but no sum is shared between blocks, so that the order of all additions is fixed. The first also makes
// the row sums that the second needs; the bits of the dropout are stored by the forward pass. The gradient of the biases is summed
// along diagonals, warp by warp, then over the warps of a block, then (in attention.cu) over the blocks.
//
// Floors on an H200, bf16, heads of 64, at 4.8 TB/s and at the 600 TFLOP/s that products of one warp (mma.sync) can reach of 990:
//                                      forward             d_q                 d_k and d_v
//   GPT, 64·6 heads, 256², causal      3.2 GF    5 µs      4.8 GF    8 µs      6.4 GF   11 µs   a quarter more with whole tiles
//                                      51 MB    11 µs      78 MB    16 µs      78 MB    16 µs
//     dropout, 3.1 M calls of Philox   6 µs                                                     about 60 instructions each
//   T5 encoder, 128·12 heads, 512²     103 GF  172 µs      155 GF  258 µs      206 GF  344 µs
//                                      405 MB   84 µs      638 MB  133 µs      610 MB  127 µs
//     exponentials, 16 a clock         109 µs              109 µs              109 µs           beside the products
//   T5 decoder, 128·12, 114², causal   2.6 GF    4 µs      3.8 GF    6 µs      5.1 GF    9 µs
//                                      90 MB    19 µs      136 MB   28 µs      135 MB   28 µs
//   T5 cross, 128·12, 114 × 512        23 GF    38 µs      34 GF    57 µs      46 GF    77 µs
//                                      246 MB   51 µs      291 MB   61 µs      448 MB   93 µs
// Registers for heads of 64 (sm_90a): 168, 248 and 255, so that 3, 2 and 2 blocks share a multiprocessor. Nothing is spilled.
// Of 32 × 32 scores with biases a warp makes 64, 96 and 128 products of 16 × 8 × 16 in about 350, 480 and 450 instructions;
// dropout takes 500 more in the first and about 100 in the others.

#if BF16

#define WARPS 4
#define TILE 64
#define RING (2 * TILE)
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define INFINITE __int_as_float(0x7F800000)
#define WHOLE_WARP 0xFFFFFFFFu

// Shared memory has addresses of 32 bits, which the products are given: they need no arithmetic but a sum.
__device__ __forceinline__ u32 shared_address(const void* at) {
    u32 address;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(address) : "l"(at));
    return address;
}

// c += a·b, 16 × 16 times 16 × 8. With g = lane/4 and t = lane%4, a thread has of c rows g (0, 1) and g + 8 (2, 3) at columns 2t
// and 2t + 1; of a the same of columns 0 to 7 (0, 1) and 8 to 15 (2, 3); of b column g at rows 2t, 2t + 1, and 2t + 8, 2t + 9.
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four matrices of 8 × 8, whose rows' addresses are with the lanes 0 to 7, 8 to 15 and so on: of each, a thread gets row g at
// columns 2t and 2t + 1.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

// The same, transposed: of each, a thread gets column g at rows 2t and 2t + 1.
__device__ __forceinline__ void load_transposed(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

// Starts to copy 16 bytes to shared memory, or zeros.
__device__ __forceinline__ void copy16(u32 to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

__device__ __forceinline__ void copy4(u32 to, const void* from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}

// Waits for all copies of this thread.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The sign of byte `n` of `low` twice, then that of byte `n` of `high`: ones or zeros.
__device__ __forceinline__ u32 signs(u32 low, u32 high, int n) {
    u32 both;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(both) : "r"(low), "r"(high), "r"(0xCC88 + 0x1111 * n));
    return both;
}

// The sizes of an attention; strides are those of the rows of queries, keys and values.
struct Flash {
    u32 heads, queries, keys, causal;
    float scale;
    u32 q_stride, k_stride, v_stride;
};

#define FLASH u32 heads, u32 queries, u32 keys, u32 causal, float scale, u32 q_stride, u32 k_stride, u32 v_stride
#define FLASH_OF \
    Flash { heads, queries, keys, causal, scale, q_stride, k_stride, v_stride }

// Numbers of a row in shared memory.
template <int D>
__device__ constexpr int row_of() {
    return D + 8;
}

// Bytes of a row, and of the rows of the other side that are there at a time.
template <int D>
__device__ constexpr u32 row_bytes() {
    return 2 * row_of<D>();
}

template <int D>
__device__ constexpr u32 ring_bytes() {
    return RING * row_bytes<D>();
}

// How often a warp has 16 rows: what it loads of the other side is then used as often.
template <int D>
__device__ constexpr int height_of() {
    return D > 64 ? 1 : 2;
}

// A block's own rows.
template <int D>
__device__ constexpr int rows_of_block() {
    return 16 * WARPS * height_of<D>();
}

// What a block has of an attention, and a warp of it.
struct Place {
    u32 tile, head, sequence, pair, warp;
};

// With a causal mask, the grid has the tiles last: all blocks of the tile that sees most come first, those that see least last,
// when there is nothing else left to fill the device; `last` says which end sees most. A warp's number is also that of the
// quarter of a multiprocessor that it runs on, so that half of the blocks have their rows the other way round: else the same
// quarter always had the most to do.
__device__ __forceinline__ Place place_of(const Flash& f, bool last) {
    u32 warp = __shfl_sync(WHOLE_WARP, threadIdx.x / 32, 0);
    if (!f.causal) return Place{blockIdx.x, blockIdx.y, blockIdx.z, blockIdx.z * f.heads + blockIdx.y, warp};
    u32 tile = last ? gridDim.z - 1 - blockIdx.z : blockIdx.z, pair = blockIdx.y * f.heads + blockIdx.x;
    // The highest bit of the product is as good as random, so that it differs between blocks that run beside each other.
    warp ^= pair * 0x9E3779B9u >> 31 ? WARPS - 1 : 0;
    return Place{tile, blockIdx.x, blockIdx.y, pair, warp};
}

// Where the masks of a pair and the n-th 32 keys begin, a word for every query. There are words for whole blocks of keys.
__device__ __forceinline__ u32 masks_of(const Flash& f, u32 pair, u32 n) {
    return (pair * ((f.keys + 127) / 128 * 4) + n) * f.queries;
}

// Rows of some columns: row 0 begins at number `start`. Numbers have indices of 32 bits, which take fewer registers than
// addresses.
struct Rows {
    u32 start, stride;
};

// The rows of a sequence and a head, where sequences have `count` rows.
template <int D>
__device__ __forceinline__ Rows rows_of(u32 sequence, u32 count, u32 stride, u32 head) {
    return Rows{sequence * count * stride + head * D, stride};
}

// Starts to copy COUNT rows from `first` on, zeros from `count` on.
template <int D, int COUNT>
__device__ __forceinline__ void copy_rows(u32 to, const bf16* from, Rows rows, u32 first, u32 count) {
    constexpr u32 PIECES = D / 8, STEP = 32 * WARPS / PIECES;
    u32 row = threadIdx.x / PIECES, column = threadIdx.x % PIECES * 8;
    to += row * row_bytes<D>() + 2 * column;
    row += first;
    u32 at = rows.start + row * rows.stride + column;
    if (first + COUNT <= count) {
#pragma unroll
        for (u32 i = 0; i < COUNT / STEP; i++) copy16(to + i * STEP * row_bytes<D>(), from + (at + i * STEP * rows.stride), true);
    } else {
#pragma unroll
        for (u32 i = 0; i < COUNT / STEP; i++) {
            bool there = row + i * STEP < count;
            copy16(to + i * STEP * row_bytes<D>(), from + (there ? at + i * STEP * rows.stride : rows.start), there);
        }
    }
}

// How many biases a block has that meets `others` of the other side, and 16 more: a copy of them then begins in other banks.
__device__ __forceinline__ u32 biases_of(u32 own, u32 others) { return (others + TILE - 1) / TILE * TILE + own + 16; }

// The biases of a block, times log2(e): number i is that of offset `start` + i·`step`, or 0 where there is none. They stand
// twice, the second time one number earlier, so that two in a row can be read at once wherever they begin.
__device__ __forceinline__ void fill_biases(float* to, const float* bias, const Flash& f, u32 head, u32 length, int start,
                                            int step) {
    int offsets = (int)(f.queries + f.keys) - 1;
    bias += head * offsets;
    for (u32 i = threadIdx.x; i < length; i += 32 * WARPS) {
        int at = start + (int)i * step;
        float one = at >= 0 && at < offsets ? bias[at] * LOG2_E : 0.0f;
        to[i] = one;
        if (i > 0) to[length + i - 1] = one;
    }
}

// Where a thread's pairs of biases stand whose first is number `at`, or numbers at distances of 8 from it.
__device__ __forceinline__ const float* pairs_at(const float* biases, u32 length, u32 at) {
    return at % 2 ? biases + length + at - 1 : biases + at;
}

// Where a lane loads 16 × 16 of rows in shared memory as a first factor, or transposed as a second.
template <int D>
__device__ __forceinline__ u32 lane_first() {
    u32 lane = threadIdx.x % 32;
    return lane % 16 * row_bytes<D>() + lane / 16 * 16;
}

// The same as a second factor, one row for each column of the product.
template <int D>
__device__ __forceinline__ u32 lane_second() {
    u32 lane = threadIdx.x % 32;
    return (lane % 8 + lane / 16 * 8) * row_bytes<D>() + lane / 8 % 2 * 16;
}

// c += a·bᵀ over 16 columns of 32 rows of b.
template <int M, int D>
__device__ __forceinline__ void product_part(float (&c)[M][4][4], const u32 (&a)[M][4], u32 b) {
#pragma unroll
    for (int n = 0; n < 2; n++) {
        u32 second[4];
        load_matrices(second, b + n * 16 * row_bytes<D>());
#pragma unroll
        for (int m = 0; m < M; m++) {
            multiply(c[m][2 * n], a[m], second[0], second[1]);
            multiply(c[m][2 * n + 1], a[m], second[2], second[3]);
        }
    }
}

// c += a·b, with 32 rows of b.
template <int M, int D>
__device__ __forceinline__ void product_columns(float (&c)[M][D / 8][4], const u32 (&a)[M][2][4], u32 b) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            u32 second[4];
            load_transposed(second, b + k * 16 * row_bytes<D>() + 32 * n);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply(c[m][2 * n], a[m][k], second[0], second[1]);
                multiply(c[m][2 * n + 1], a[m][k], second[2], second[3]);
            }
        }
    }
}

// Accumulators of 32 columns become a first factor.
template <int M>
__device__ __forceinline__ void pack(u32 (&to)[M][2][4], const float (&c)[M][4][4]) {
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            to[m][i / 4][i % 4] = pack_bf16(c[m][i / 2][i % 2 * 2], c[m][i / 2][i % 2 * 2 + 1]);
        }
    }
}

template <int M, int N>
__device__ __forceinline__ void clear(float (&c)[M][N][4]) {
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < N; n++) c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0.0f;
    }
}

// Writes 16 rows of a warp, through its own part of shared memory so that 16 bytes go at a time. Rows from `count` on do not
// exist.
template <int D>
__device__ __forceinline__ void write_rows(bf16* to, Rows rows, u32 first, u32 count, bf16* room, const float (&c)[D / 8][4],
                                           float factor0, float factor1) {
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        *(u32*)(room + g * row_of<D>() + 8 * n + 2 * t) = pack_bf16(c[n][0] * factor0, c[n][1] * factor0);
        *(u32*)(room + (g + 8) * row_of<D>() + 8 * n + 2 * t) = pack_bf16(c[n][2] * factor1, c[n][3] * factor1);
    }
    __syncwarp();
#pragma unroll
    for (u32 i = 0; i < 16 * D / 8 / 32; i++) {
        u32 piece = lane + 32 * i, row = piece / (D / 8), column = piece % (D / 8) * 8;
        uint4 eight = *(const uint4*)(room + row * row_of<D>() + column);
        if (first + row < count) *(uint4*)(to + (rows.start + (first + row) * rows.stride + column)) = eight;
    }
}

// Which of 32 keys stay with each of a thread's queries g and g + 8, a bit for each. The result is that of query g + 8·(t % 2).
//
// One call of Philox decides over four keys of one query, which two threads have, both with two queries. So each of the four
// threads that have the same queries makes four of their sixteen calls, and they exchange bits: t = 0 and 2 for the first query,
// 1 and 3 for the second. `block` is the first call for the query of this thread.
__device__ __forceinline__ u32 kept(u32 (&to)[2], const Dropout& d, u32 time, u64 block) {
    uint2 key = make_uint2((u32)d.seed, (u32)(d.seed >> 32));
    u32 own = 0, t = threadIdx.x % 4;
    block += t / 2;
#pragma unroll
    for (u32 n = 0; n < 4; n++) {
        u64 at = block + 2 * n;
        uint4 bits = philox(make_uint4((u32)at, (u32)(at >> 32), time, d.site), key);
        if (bits.x >= d.limit) own |= 1u << 8 * n;
        if (bits.y >= d.limit) own |= 2u << 8 * n;
        if (bits.z >= d.limit) own |= 4u << 8 * n;
        if (bits.w >= d.limit) own |= 8u << 8 * n;
    }
    own <<= t / 2 * 4;
    own |= __shfl_xor_sync(WHOLE_WARP, own, 2);
    u32 other = __shfl_xor_sync(WHOLE_WARP, own, 1);
    to[0] = t % 2 ? other : own;
    to[1] = t % 2 ? own : other;
    return own;
}

__device__ __forceinline__ bool bit(u32 word, u32 at) { return word >> at & 1u; }

// s·scale + bias for 32 columns. The biases of two numbers are the same where one is 8 rows and 8 columns further.
template <int M>
__device__ __forceinline__ void add_biases(float (&s)[M][4][4], float scale, const float* pairs) {
#pragma unroll
    for (int j = 1 - 2 * M; j < 4; j++) {
        float2 both = *(const float2*)(pairs + 8 * j);
#pragma unroll
        for (int r = 0; r < 2 * M; r++) {
            int n = j + r;
            if (n < 0 || n > 3) continue;
            s[r / 2][n][r % 2 * 2] = s[r / 2][n][r % 2 * 2] * scale + both.x;
            s[r / 2][n][r % 2 * 2 + 1] = s[r / 2][n][r % 2 * 2 + 1] * scale + both.y;
        }
    }
}

// −∞ where a query does not see a key, for 32 keys from `key` on; `query` is the thread's first query.
template <int M>
__device__ __forceinline__ void hide(float (&s)[M][4][4], const Flash& f, u32 query, u32 key) {
    u32 at = key + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        u32 end = f.causal ? min(f.keys, query + 8 * r + 1) : f.keys;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (at + i / 2 * 8 + i % 2 >= end) s[r / 2][i / 2][r % 2 * 2 + i % 2] = -INFINITE;
        }
    }
}

// out = (M∘softmax(scale·q·kᵀ + bias))·v. The powers are relative to a number for each row that is at most 8 (a factor of 256)
// less than its largest score so far; only where that would not hold it grows, and what was summed is scaled down.
// The backward pass needs the bits of the dropout.
template <int D>
__device__ __forceinline__ void flash_forward(const Flash& f, const bf16* q, const bf16* k, const bf16* v, const float* bias,
                                              bf16* out, float* logs, u32* masks, const Dropout& d) {
    constexpr int M = height_of<D>(), OWN = rows_of_block<D>();
    extern __shared__ __align__(16) unsigned char shared[];
    bf16* queries = (bf16*)shared;
    u32 queries_at = shared_address(queries), ring_at = queries_at + OWN * row_bytes<D>();
    float* biases = (float*)(queries + (OWN + 2 * RING) * row_of<D>());
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    Place place = place_of(f, true);
    u32 tile = place.tile, head = place.head, sequence = place.sequence, pair = place.pair, warp = place.warp;
    u32 first = tile * OWN, mine = first + 16 * M * warp;
    Rows k_rows = rows_of<D>(sequence, f.keys, f.k_stride, head), v_rows = rows_of<D>(sequence, f.keys, f.v_stride, head);
    u32 seen = f.causal ? min(f.keys, first + OWN) : f.keys;

    auto copy_tiles = [&](u32 key) {
        u32 to = ring_at + key % RING * row_bytes<D>();
        copy_rows<D, TILE>(to, k, k_rows, key, f.keys);
        copy_rows<D, TILE>(to + ring_bytes<D>(), v, v_rows, key, f.keys);
    };
    copy_rows<D, OWN>(queries_at, q, rows_of<D>(sequence, f.queries, f.q_stride, head), first, f.queries);
    copy_tiles(0);
    u32 length = biases_of(OWN, f.keys);
    if (bias) fill_biases(biases, bias, f, head, length, (int)f.queries - OWN - (int)first, 1);
    const float* near = pairs_at(biases, length, OWN - 1 + 2 * t - g - 16 * M * warp);

    u32 own[D / 16][M][4], time = step_of(d);
    float sums[M][D / 8][4], most[2 * M], total[2 * M];
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        most[r] = -INFINITE;
        total[r] = 0.0f;
    }
    clear(sums);
    // Biases come with the scores as powers of 2; without, the factor waits for the exponent.
    float scale = f.scale * LOG2_E, factor = bias ? 1.0f : scale;
    u32 calls = (f.keys + 3) / 4, straight = lane_second<D>(), transposed = lane_first<D>() + ring_bytes<D>();
    u32 row = pair * f.queries + mine + g;
#pragma unroll 1
    for (u32 key = 0; key < seen; key += 32) {
        if (key % TILE == 0) {
            wait_for_copies();
            __syncthreads();
            if (key + TILE < seen) copy_tiles(key + TILE);
        }
        if (key == 0) {
#pragma unroll
            for (int i = 0; i < D / 16 * M; i++) {
                u32 part = 16 * (M * warp + i % M) * row_bytes<D>() + i / M * 32;
                load_matrices(own[i / M][i % M], queries_at + part + lane_first<D>());
            }
        }
        if (mine >= f.queries || (f.causal && key > mine + 16 * M - 1)) continue;
        u32 keys = ring_at + key % RING * row_bytes<D>();
        float s[M][4][4];
        clear(s);
#pragma unroll
        for (int i = 0; i < D / 16; i++) product_part<M, D>(s, own[i], keys + straight + 32 * i);
        if (bias) add_biases(s, scale, near + key);
        if (key + 32 > f.keys || (f.causal && key + 31 > mine)) hide(s, f, mine + g, key);

        float now[2 * M];
        bool grows = false;
#pragma unroll
        for (int r = 0; r < 2 * M; r++) {
            int i = r % 2 * 2;
            now[r] = fmaxf(s[r / 2][0][i], s[r / 2][0][i + 1]);
#pragma unroll
            for (int n = 1; n < 4; n++) now[r] = fmaxf(now[r], fmaxf(s[r / 2][n][i], s[r / 2][n][i + 1]));
            grows |= now[r] * factor > most[r] + 8.0f;
        }
        if (__any_sync(WHOLE_WARP, grows)) {
#pragma unroll
            for (int r = 0; r < 2 * M; r++) {
                now[r] = fmaxf(now[r], __shfl_xor_sync(WHOLE_WARP, now[r], 1));
                now[r] = fmaxf(now[r], __shfl_xor_sync(WHOLE_WARP, now[r], 2));
                now[r] = fmaxf(now[r] * factor, most[r]);
                float down = power_of_2(most[r] - now[r]);
                most[r] = now[r];
                total[r] *= down;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    sums[r / 2][n][r % 2 * 2] *= down;
                    sums[r / 2][n][r % 2 * 2 + 1] *= down;
                }
            }
        }
#pragma unroll
        for (int r = 0; r < 2 * M; r++) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float& x = s[r / 2][i / 2][r % 2 * 2 + i % 2];
                x = power_of_2(x * factor - most[r]);
                total[r] += x;
            }
        }
        u32 weights[M][2][4];
        pack(weights, s);
        if (d.limit) {
            u32 word = 0;
#pragma unroll
            for (int m = 0; m < M; m++) {
                u32 stay[2], one = kept(stay, d, time, (u64)(row + 16 * m + 8 * (t & 1)) * calls + key / 4);
                if (m == t / 2) word = one;
                // The bits of this thread's columns go to the signs of the bytes.
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    weights[m][i / 4][i % 4] &= signs(stay[i % 2] << (7 - 2 * t), stay[i % 2] << (6 - 2 * t), i / 2);
                }
            }
            // Thread t keeps the bits of query g + 8t: a warp writes words in a row.
            u32 of = mine + g + 8 * t;
            if (t < 2 * M && of < f.queries) masks[masks_of(f, pair, key / 32) + of] = word;
        }
        product_columns<M, D>(sums, weights, keys + transposed);
    }

    Rows out_rows = rows_of<D>(sequence, f.queries, f.heads * D, head);
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        total[r] += __shfl_xor_sync(WHOLE_WARP, total[r], 1);
        total[r] += __shfl_xor_sync(WHOLE_WARP, total[r], 2);
        if (t == 0 && mine + g + 8 * r < f.queries) logs[row + 8 * r] = most[r] * LN_2 + logf(total[r]);
    }
#pragma unroll
    for (int m = 0; m < M; m++) {
        bf16* room = queries + 16 * (M * warp + m) * row_of<D>();
        write_rows<D>(out, out_rows, mine + 16 * m, f.queries, room, sums[m], d.keep / total[2 * m], d.keep / total[2 * m + 1]);
    }
}

// d_q = scale·dS·k with dS = P∘(M∘(d_out·vᵀ) − inner), inner = rowsum(d_out∘out), which is kept for the other kernel. With
// `partial`, the sums of dS along its diagonals: OWN − 1 + keys of them for a block with OWN queries, diagonal
// OWN − 1 + key − (query − first query).
template <int D>
__device__ __forceinline__ void flash_backward_queries(const Flash& f, const bf16* q, const bf16* k, const bf16* v,
                                                       const float* bias, const bf16* out, const bf16* d_out, const float* logs,
                                                       const u32* masks, float* inner, bf16* d_q, float* partial,
                                                       const Dropout& d) {
    constexpr int M = height_of<D>(), OWN = rows_of_block<D>();
    extern __shared__ __align__(16) unsigned char shared[];
    bf16* queries = (bf16*)shared;
    bf16* d_rows = queries + OWN * row_of<D>();
    u32 queries_at = shared_address(queries), d_rows_at = queries_at + OWN * row_bytes<D>();
    u32 ring_at = d_rows_at + OWN * row_bytes<D>();
    float* biases = (float*)(d_rows + (OWN + 2 * RING) * row_of<D>());
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    Place place = place_of(f, true);
    u32 tile = place.tile, head = place.head, sequence = place.sequence, pair = place.pair, warp = place.warp;
    u32 first = tile * OWN, mine = first + 16 * M * warp;
    Rows q_rows = rows_of<D>(sequence, f.queries, f.q_stride, head);
    Rows k_rows = rows_of<D>(sequence, f.keys, f.k_stride, head), v_rows = rows_of<D>(sequence, f.keys, f.v_stride, head);
    Rows out_rows = rows_of<D>(sequence, f.queries, f.heads * D, head);
    u32 seen = f.causal ? min(f.keys, first + OWN) : f.keys;

    auto copy_tiles = [&](u32 key) {
        u32 to = ring_at + key % RING * row_bytes<D>();
        copy_rows<D, TILE>(to, k, k_rows, key, f.keys);
        copy_rows<D, TILE>(to + ring_bytes<D>(), v, v_rows, key, f.keys);
    };
    // The output waits where the second tiles of keys and of values will come.
    u32 outputs_at = ring_at + TILE * row_bytes<D>();
    copy_rows<D, OWN>(queries_at, q, q_rows, first, f.queries);
    copy_rows<D, OWN>(d_rows_at, d_out, out_rows, first, f.queries);
#pragma unroll
    for (u32 i = 0; i < OWN; i += TILE) {
        copy_rows<D, TILE>(outputs_at + i / TILE * ring_bytes<D>(), out, out_rows, first + i, f.queries);
    }
    copy_tiles(0);

    u32 length = biases_of(OWN, f.keys);
    if (bias) fill_biases(biases, bias, f, head, length, (int)f.queries - OWN - (int)first, 1);
    const float* near = pairs_at(biases, length, OWN - 1 + 2 * t - g - 16 * M * warp);
    // A warp's diagonals, diagonal 16M − 1 + key − (query − first query): all keys, and 32 more.
    u32 diagonals = (f.keys + TILE - 1) / TILE * TILE + 32;
    float* along = biases + (bias ? 2 * length : 0) + warp * diagonals;
    if (partial) {
        for (u32 i = lane; i < diagonals; i += 32) along[i] = 0.0f;
    }
    wait_for_copies();
    __syncthreads();

    u32 own[D / 16][M][4], d_own[D / 16][M][4];
    float less[2 * M], log[2 * M];
#pragma unroll
    for (int r = 0; r < 2 * M; r++) less[r] = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            u32 o[4], rows = 16 * (M * warp + m), part = rows * row_bytes<D>() + i * 32 + lane_first<D>();
            load_matrices(own[i][m], queries_at + part);
            load_matrices(d_own[i][m], d_rows_at + part);
            load_matrices(o, outputs_at + part + rows / TILE * (ring_bytes<D>() - TILE * row_bytes<D>()));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                u32 x = d_own[i][m][j];
                less[2 * m + j % 2] += low_bf16(x) * low_bf16(o[j]) + high_bf16(x) * high_bf16(o[j]);
            }
        }
    }
    u32 row = pair * f.queries + mine + g;
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
        less[r] += __shfl_xor_sync(WHOLE_WARP, less[r], 1);
        less[r] += __shfl_xor_sync(WHOLE_WARP, less[r], 2);
        // Queries that do not exist have no weights.
        log[r] = INFINITE;
        if (mine + g + 8 * r < f.queries) {
            log[r] = logs[row + 8 * r] * LOG2_E;
            if (t == 0) inner[row + 8 * r] = less[r];
        }
    }
    // The diagonals of 32 keys are summed where the warp's rows of d_out were: 8 rows of 72 numbers, which begin and end with
    // zeros.
    float* room = (float*)(d_rows + 16 * M * warp * row_of<D>());
    float carried = 0.0f;
    u32 reached = 0;
    __syncthreads();
    if (partial) {
        for (u32 i = lane; i < 8 * 72; i += 32) room[i] = 0.0f;
    }

    float sums[M][D / 8][4], scale = f.scale * LOG2_E, factor = bias ? 1.0f : scale;
    u32 straight = lane_second<D>(), transposed = lane_first<D>();
    clear(sums);
    // Thread t reads the bits of query g + 8t, always those of the next 32 keys.
    bool reads = d.limit && t < 2 * M && mine + g + 8 * t < f.queries;
    u32 next = reads ? masks[masks_of(f, pair, 0) + mine + g + 8 * t] : 0;
#pragma unroll 1
    for (u32 key = 0; key < seen; key += 32) {
        if (key % TILE == 0) {
            if (key > 0) {
                wait_for_copies();
                __syncthreads();
            }
            if (key + TILE < seen) copy_tiles(key + TILE);
        }
        if (mine >= f.queries || (f.causal && key > mine + 16 * M - 1)) continue;
        u32 stay = next, keys = ring_at + key % RING * row_bytes<D>();
        if (reads && key + 32 < seen) next = masks[masks_of(f, pair, key / 32 + 1) + mine + g + 8 * t];
        float s[M][4][4], ds[M][4][4];
        clear(s);
        clear(ds);
#pragma unroll
        for (int i = 0; i < D / 16; i++) product_part<M, D>(s, own[i], keys + straight + 32 * i);
#pragma unroll
        for (int i = 0; i < D / 16; i++) product_part<M, D>(ds, d_own[i], keys + ring_bytes<D>() + straight + 32 * i);
        if (bias) add_biases(s, scale, near + key);
        if (key + 32 > f.keys || (f.causal && key + 31 > mine)) hide(s, f, mine + g, key);
        if (d.limit) {
#pragma unroll
            for (int r = 0; r < 2 * M; r++) {
                u32 word = __shfl_sync(WHOLE_WARP, stay, lane / 4 * 4 + r) >> (2 * t);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    float& x = ds[r / 2][i / 2][r % 2 * 2 + i % 2];
                    x = bit(word, i / 2 * 8 + i % 2) ? x : 0.0f;
                }
            }
        }
#pragma unroll
        for (int r = 0; r < 2 * M; r++) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int j = r % 2 * 2 + i % 2;
                float& x = ds[r / 2][i / 2][j];
                x = power_of_2(s[r / 2][i / 2][j] * factor - log[r]) * (x * d.keep - less[r]);
            }
        }
        if (partial) {
            // Row g of `room` has the sums of rows g, g + 8 and so on, each moved by the 8 keys that it is behind; diagonals of
            // these numbers are those of the scores. The second 32 of them go on in the next 32 keys.
            __syncwarp();
#pragma unroll
            for (int j = 1 - 2 * M; j < 4; j++) {
                float2 both = make_float2(0.0f, 0.0f);
#pragma unroll
                for (int r = 0; r < 2 * M; r++) {
                    int n = j + r;
                    if (n < 0 || n > 3) continue;
                    both.x += ds[r / 2][n][r % 2 * 2];
                    both.y += ds[r / 2][n][r % 2 * 2 + 1];
                }
                *(float2*)(room + 72 * g + 8 * (j + 2 * M) + 2 * t) = both;
            }
            __syncwarp();
            float low = carried;
            carried = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                low += room[73 * i + 1 + lane];
                carried += room[73 * i + 33 + lane];
            }
            along[key + lane] = low;
            reached = key + 32;
        }
        u32 first_factor[M][2][4];
        pack(first_factor, ds);
        product_columns<M, D>(sums, first_factor, keys + transposed);
    }
#pragma unroll
    for (int m = 0; m < M; m++) {
        bf16* rows = queries + 16 * (M * warp + m) * row_of<D>();
        write_rows<D>(d_q, q_rows, mine + 16 * m, f.queries, rows, sums[m], f.scale, f.scale);
    }

    if (partial) {
        along[reached + lane] = carried;
        __syncthreads();
        u32 all = f.keys + OWN - 1;
        along -= warp * diagonals;
        partial += (u64)(pair * (f.causal ? gridDim.z : gridDim.x) + tile) * all;
        for (u32 i = threadIdx.x; i < all; i += 32 * WARPS) {
            float sum = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                int at = (int)i - 16 * M * (WARPS - 1 - w);
                if (at >= 0 && at < (int)diagonals) sum += along[w * diagonals + at];
            }
            partial[i] = sum;
        }
    }
}

// d_v = (M∘P)ᵀ·d_out and d_k = scale·dSᵀ·q. The scores stand transposed, keys by queries.
template <int D>
__device__ __forceinline__ void flash_backward_keys(const Flash& f, const bf16* q, const bf16* k, const bf16* v,
                                                    const float* bias, const bf16* d_out, const float* logs,
                                                    const u32* masks, const float* inner, bf16* d_k, bf16* d_v, const Dropout& d) {
    constexpr int M = height_of<D>(), OWN = rows_of_block<D>(), WORDS = OWN / 32;
    extern __shared__ __align__(16) unsigned char shared[];
    bf16* keys = (bf16*)shared;
    bf16* values = keys + OWN * row_of<D>();
    u32 keys_at = shared_address(keys), values_at = keys_at + OWN * row_bytes<D>();
    u32 ring_at = values_at + OWN * row_bytes<D>();
    // Of the same queries logarithms, row sums and words of masks.
    float* statistics = (float*)(values + (OWN + 2 * RING) * row_of<D>());
    float* biases = statistics + (2 + WORDS) * RING;
    u32 statistics_at = shared_address(statistics);
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    Place place = place_of(f, false);
    u32 tile = place.tile, head = place.head, sequence = place.sequence, pair = place.pair, warp = place.warp;
    u32 first = tile * OWN, mine = first + 16 * M * warp;
    Rows q_rows = rows_of<D>(sequence, f.queries, f.q_stride, head);
    Rows k_rows = rows_of<D>(sequence, f.keys, f.k_stride, head), v_rows = rows_of<D>(sequence, f.keys, f.v_stride, head);
    Rows out_rows = rows_of<D>(sequence, f.queries, f.heads * D, head);
    u32 begin = f.causal ? first : 0;

    auto copy_tiles = [&](u32 query) {
        u32 to = ring_at + query % RING * row_bytes<D>();
        copy_rows<D, TILE>(to, q, q_rows, query, f.queries);
        copy_rows<D, TILE>(to + ring_bytes<D>(), d_out, out_rows, query, f.queries);
        // Half of the threads have the logarithms and the even words, the others the sums and the odd words.
        u32 of = query + threadIdx.x % TILE, from = min(of, f.queries - 1), half = threadIdx.x / TILE;
        u32 number = statistics_at + 4 * (half * RING + of % RING);
        copy4(number, (half ? inner : logs) + (pair * f.queries + from), of < f.queries);
        if (d.limit) {
            u32 words = masks_of(f, pair, tile * WORDS + half) + from;
#pragma unroll
            for (u32 i = 0; i < WORDS; i += 2) {
                copy4(number + 4 * (2 + i) * RING, masks + (words + i * f.queries), of < f.queries);
            }
        }
    };
    copy_rows<D, OWN>(keys_at, k, k_rows, first, f.keys);
    copy_rows<D, OWN>(values_at, v, v_rows, first, f.keys);
    if (begin < f.queries) copy_tiles(begin);
    u32 length = biases_of(OWN, f.queries);
    if (bias) fill_biases(biases, bias, f, head, length, (int)(first + OWN + f.queries) - 2, -1);
    const float* near = pairs_at(biases, length, OWN - 1 + 2 * t - g - 16 * M * warp);

    // There are no registers for keys and values: they are read again for every product.
    float d_keys[M][D / 8][4], d_values[M][D / 8][4], scale = f.scale * LOG2_E;
    clear(d_keys);
    clear(d_values);
    u32 straight = lane_second<D>(), transposed = lane_first<D>();
    u32 own = keys_at + 16 * M * warp * row_bytes<D>() + lane_first<D>();
#pragma unroll 1
    for (u32 query = begin; query < f.queries; query += 32) {
        if (query % TILE == 0) {
            wait_for_copies();
            __syncthreads();
            if (query + TILE < f.queries) copy_tiles(query + TILE);
        }
        if (mine >= f.keys || (f.causal && query + 31 < mine)) continue;
        u32 rows = ring_at + query % RING * row_bytes<D>();
        float p[M][4][4];
        clear(p);
        auto product = [&](float(&c)[M][4][4], u32 a, u32 b) {
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                u32 firsts[M][4];
#pragma unroll
                for (int m = 0; m < M; m++) load_matrices(firsts[m], a + 16 * m * row_bytes<D>() + 32 * i);
                product_part<M, D>(c, firsts, b + 32 * i);
            }
        };
        product(p, own, rows + straight);
        const float* column = statistics + query % RING + 2 * t;
        float factor = scale;
        if (bias) {
            add_biases(p, scale, near + query);
            factor = 1.0f;
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float2 log = *(const float2*)(column + 8 * n);
            log = make_float2(log.x * LOG2_E, log.y * LOG2_E);
#pragma unroll
            for (int i = 0; i < 4 * M; i++) {
                float& x = p[i / 4][n][i % 4];
                x = power_of_2(x * factor - (i % 2 ? log.y : log.x));
            }
        }
        if (query + 32 > f.queries || (f.causal && query < mine + 16 * M - 1)) {
#pragma unroll
            for (int n = 0; n < 4; n++) {
#pragma unroll
                for (int i = 0; i < 4 * M; i++) {
                    u32 of = query + 8 * n + 2 * t + i % 2;
                    if (of >= f.queries || (f.causal && of < mine + g + i / 2 * 8)) p[i / 4][n][i % 4] = 0.0f;
                }
            }
        }
        u32 weights[M][2][4];
        pack(weights, p);
        const u32* word = (const u32*)column + (2 + 16 * M * warp / 32) * RING;
        u32 from = 16 * M * warp % 32;
        if (d.limit) {
            // The bits of this thread's keys go to the signs of the bytes.
#pragma unroll
            for (int n = 0; n < 4; n++) {
                uint2 stay = *(const uint2*)(word + 8 * n);
                u32 low = stay.x >> from << (7 - g), high = stay.y >> from << (7 - g);
#pragma unroll
                for (int r = 0; r < 2 * M; r++) weights[r / 2][n / 2][n % 2 * 2 + r % 2] &= signs(low, high, r);
            }
        }
        product_columns<M, D>(d_values, weights, rows + ring_bytes<D>() + transposed);

        float ds[M][4][4];
        clear(ds);
        product(ds, own + OWN * row_bytes<D>(), rows + ring_bytes<D>() + straight);
        if (d.limit) {
#pragma unroll
            for (int n = 0; n < 4; n++) {
                uint2 stay = *(const uint2*)(word + 8 * n);
                u32 low = stay.x >> (from + g), high = stay.y >> (from + g);
#pragma unroll
                for (int i = 0; i < 4 * M; i++) {
                    float& x = ds[i / 4][n][i % 4];
                    x = bit(i % 2 ? high : low, i / 2 * 8) ? x : 0.0f;
                }
            }
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float2 less = *(const float2*)(column + RING + 8 * n);
#pragma unroll
            for (int i = 0; i < 4 * M; i++) {
                float& x = ds[i / 4][n][i % 4];
                x = p[i / 4][n][i % 4] * (x * d.keep - (i % 2 ? less.y : less.x));
            }
        }
        pack(weights, ds);
        product_columns<M, D>(d_keys, weights, rows + transposed);
    }
    // Where no query sees these keys, the copies of the keys are still on their way to where the results go.
    wait_for_copies();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < M; m++) {
        u32 row = 16 * (M * warp + m);
        write_rows<D>(d_k, k_rows, first + row, f.keys, keys + row * row_of<D>(), d_keys[m], f.scale, f.scale);
        write_rows<D>(d_v, v_rows, first + row, f.keys, values + row * row_of<D>(), d_values[m], d.keep, d.keep);
    }
}

#define KERNELS(D)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, D > 64 ? 2 : 3)                                                  \
        flash_forward_##D(FLASH, const bf16* q, const bf16* k, const bf16* v, const float* bias, bf16* out, float* logs,      \
                          u32* masks, DROPOUT(d)) {                                                                           \
        flash_forward<D>(FLASH_OF, q, k, v, bias, out, logs, masks, DROPOUT_OF(d));                                           \
    }                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, D > 32 ? 2 : 3)                                                  \
        flash_backward_queries_##D(FLASH, const bf16* q, const bf16* k, const bf16* v, const float* bias, const bf16* out,    \
                                   const bf16* d_out, const float* logs, const u32* masks, float* inner, bf16* d_q,           \
                                   float* partial, DROPOUT(d)) {                                                              \
        flash_backward_queries<D>(FLASH_OF, q, k, v, bias, out, d_out, logs, masks, inner, d_q, partial, DROPOUT_OF(d));      \
    }                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)                                                               \
        flash_backward_keys_##D(FLASH, const bf16* q, const bf16* k, const bf16* v, const float* bias, const bf16* d_out,     \
                                const float* logs, const u32* masks, const float* inner, bf16* d_k, bf16* d_v, DROPOUT(d)) {  \
        flash_backward_keys<D>(FLASH_OF, q, k, v, bias, d_out, logs, masks, inner, d_k, d_v, DROPOUT_OF(d));                  \
    }

KERNELS(32)
KERNELS(64)
KERNELS(128)

#endif
