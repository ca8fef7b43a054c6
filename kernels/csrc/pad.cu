// Kernel `pad`: token rows of different lengths, one after another, become a padded batch and its mask.
//
// Row i is tokens[starts[i]] to tokens[starts[i + 1]]; what does not fit is cut. Starts outside the tokens are brought
// back to them: a wrong descriptor gives a wrong row, never a read outside.

#include "common.cuh"

template <typename T>
__device__ __forceinline__ void pad(const T *tokens, const int *starts, T *ids, T *mask, int count, int width, T fill) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (column >= width) return;
    const int start = clamp(starts[row], 0, count), end = clamp(starts[row + 1], 0, count);
    const bool is_token = column < end - start;
    const u64 place = (u64)row * width + column;
    ids[place] = is_token ? tokens[start + column] : fill;
    mask[place] = is_token ? 1 : 0;
}

extern "C" __global__ void __launch_bounds__(128)
    pad_int32(const int *tokens, const int *starts, int *ids, int *mask, int count, int width, int fill) {
    pad(tokens, starts, ids, mask, count, width, fill);
}

extern "C" __global__ void __launch_bounds__(128)
    pad_int64(const long long *tokens, const int *starts, long long *ids, long long *mask, int count, int width,
              int fill) {
    pad(tokens, starts, ids, mask, count, width, (long long)fill);
}
