// The kernels of relative_bias.rs: a few thousand numbers.

// out[h][offset] = table[bucket of the offset][h].
extern "C" __global__ void relative_bias(const float* table, const u32* buckets, u32 offsets, u32 heads, float* out) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < offsets * heads) out[i] = table[buckets[i % offsets] * heads + i / offsets];
}

// A warp for every (bucket, head): the sum over the bucket's offsets.
extern "C" __global__ void relative_bias_backward(const float* d_out, const u32* buckets, u32 offsets, u32 heads, u32 all, float* d_table) {
    u32 entry = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (entry >= all * heads) return;
    float sum = 0.0f;
    for (u32 i = lane; i < offsets; i += 32)
        if (buckets[i] == entry / heads) sum += d_out[entry % heads * offsets + i];
    sum = warp_sum(sum);
    if (lane == 0) d_table[entry] = sum;
}
