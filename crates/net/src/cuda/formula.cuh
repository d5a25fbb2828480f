// What the kernels of formulas share; formula.rs writes their text behind it.

// A tensor: where it begins and ends, whether it decays, and its scale.
struct TensorRange {
    u32 start, end, decays;
    float scale;
};

// What holds for four numbers.
template <class S>
struct TensorInfo {
    S decay[4], scale[4];
};

// What holds for the four numbers from `at` on. The tensors are sorted and not empty; between them nothing decays, and the scale is 1.
template <class S>
__device__ __forceinline__ TensorInfo<S> info4(const TensorRange* tensors, u32 count, u64 at, S decay) {
    const TensorRange NONE = {0xFFFFFFFFu, 0xFFFFFFFFu, 0, 1.0f};
    u32 low = 0, high = count;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (tensors[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    TensorRange tensor = low < count ? tensors[low] : NONE;
    TensorInfo<S> info;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (at + k >= tensor.end) {
            low++;
            tensor = low < count ? tensors[low] : NONE;
        }
        bool inside = at + k >= tensor.start;
        info.decay[k] = inside && tensor.decays ? decay : S(0);
        info.scale[k] = inside ? S(tensor.scale) : S(1);
    }
    return info;
}
