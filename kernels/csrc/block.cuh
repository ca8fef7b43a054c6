// Reductions over a whole block, through shared memory; for device code alone.
#pragma once

#include "common.cuh"

const int MAX_WARPS = 32;

// Every thread of the block takes part and gets the result. `scratch` is shared memory of MAX_WARPS values that no one
// else uses meanwhile; it may be used again at once.
template <typename T, typename Combine, typename OfWarp>
__device__ __forceinline__ T block_reduce(T value, T *scratch, T neutral, OfWarp of_warp, Combine combine) {
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, warps = (blockDim.x * blockDim.y + 31) / 32;
    value = of_warp(value);
    if (thread % 32 == 0) scratch[thread / 32] = value;
    __syncthreads();
    T total = neutral;
    for (int warp = 0; warp < warps; ++warp) total = combine(total, scratch[warp]);
    __syncthreads();
    return total;
}

__device__ __forceinline__ float block_sum(float value, float *scratch) {
    return block_reduce(
        value, scratch, 0.0f, [](float x) { return warp_sum(x); }, [](float x, float y) { return x + y; });
}

__device__ __forceinline__ float block_max(float value, float *scratch) {
    return block_reduce(
        value, scratch, -INFINITY_FLOAT, [](float x) { return warp_max(x); },
        [](float x, float y) { return fmaxf(x, y); });
}

__device__ __forceinline__ u64 block_max(u64 value, u64 *scratch) {
    return block_reduce(
        value, scratch, (u64)0, [](u64 x) { return warp_max(x); }, [](u64 x, u64 y) { return x > y ? x : y; });
}
