// What the kernels of formulas share; formula.rs writes their text behind it.

// The decay of the four numbers from `at` on. The ranges that decay are sorted and not empty: starts and ends in turn.
template <class S>
struct Decays {
    S v[4];
};

template <class S>
__device__ __forceinline__ Decays<S> decays4(const u32* ranges, u32 count, u64 at, S decay) {
    const u32 NEVER = 0xFFFFFFFFu;
    u32 low = 0, high = count;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (ranges[2 * middle + 1] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    u32 start = low < count ? ranges[2 * low] : NEVER, end = low < count ? ranges[2 * low + 1] : NEVER;
    Decays<S> found;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (at + k >= end) {
            low++;
            start = low < count ? ranges[2 * low] : NEVER, end = low < count ? ranges[2 * low + 1] : NEVER;
        }
        found.v[k] = at + k >= start ? decay : S(0);
    }
    return found;
}
