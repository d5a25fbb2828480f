// The kernel of regularizers.rs. Bound by memory, at the paper's shape 22 MB, 5 µs.

// d_raw_t = M ∘ (d_dropped_t + activation·dropped_t) + change·((h_t − h_{t−1}) − (h_{t+1} − h_t)), with no change before the first
// position and after the last. `raw` begins with the state before the first position.
extern "C" __global__ void regularizers_backward(const T* dropped, const T* raw, const T* d_dropped, T* d_raw, u64 rows, u32 batch, u32 width,
                                                 float activation, float change, DROPOUT(d)) {
    Dropout d = DROPOUT_OF(d);
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * width) return;
    u64 row = i / width;
    u64 state = (u64)batch * width;
    float h = to_float(raw[i + state]);
    float before = row < batch ? h : to_float(raw[i]);
    float after = row + batch < rows ? to_float(raw[i + 2 * state]) : h;
    float keep = keep1(d, step_of(d), (row % d.period) * width + i % width);
    store(d_raw + i, keep * (to_float(d_dropped[i]) + activation * to_float(dropped[i])) + change * ((h - before) - (after - h)));
}
