// What the kernels of formulas share; formula.rs writes their text behind it.

// A tensor: where it begins and ends, whether it decays, and its scale.
struct Place {
    u32 start, end, decays;
    float scale;
};

// What holds for four numbers.
template <class S>
struct Here {
    S decay[4], scale[4];
};

// What holds for the four numbers from `at` on. The places are sorted and not empty; between them nothing decays, and the scale is 1.
template <class S>
__device__ __forceinline__ Here<S> here4(const Place* places, u32 count, u64 at, S decay) {
    const Place NOWHERE = {0xFFFFFFFFu, 0xFFFFFFFFu, 0, 1.0f};
    u32 low = 0, high = count;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (places[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    Place place = low < count ? places[low] : NOWHERE;
    Here<S> here;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (at + k >= place.end) {
            low++;
            place = low < count ? places[low] : NOWHERE;
        }
        bool inside = at + k >= place.start;
        here.decay[k] = inside && place.decays ? decay : S(0);
        here.scale[k] = inside ? S(place.scale) : S(1);
    }
    return here;
}
