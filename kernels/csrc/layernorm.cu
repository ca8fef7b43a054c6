// Kernel `layernorm`: (x + residual), normalised over its last dimension, times gamma plus beta; a block per row.
//
// Each thread moves 16 bytes at a time. The sum stays in shared memory as FP32, so that x and residual are read once,
// and the variance is that of the differences from the mean, which loses nothing to cancellation.
//
// The entry points are TensorRT's as well (`engines/plugins.py`), which passes a plugin's inputs, then integers, then its
// outputs: hence the order, and an epsilon that is given as its bits.

#include "block.cuh"

const int MAX_WIDTH = 8192; // 32 KiB of shared memory

template <typename T>
__device__ __forceinline__ void layernorm(const T *x, const T *residual, const T *gamma, const T *beta, int width,
                                          u32 epsilon_bits, T *out) {
    __shared__ float row[MAX_WIDTH];
    __shared__ float scratch[MAX_WARPS];
    const int lanes = 16 / sizeof(T), packs = width / lanes;
    const u64 start = (u64)blockIdx.x * packs;
    const Pack<T> *x_packs = (const Pack<T> *)x + start, *residual_packs = (const Pack<T> *)residual + start;
    float sum = 0.0f;
    for (int pack = threadIdx.x; pack < packs; pack += blockDim.x) {
        const Pack<T> left = x_packs[pack], right = residual_packs[pack];
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
            const float value = to_float(left.values[i]) + to_float(right.values[i]);
            row[pack * lanes + i] = value;
            sum += value;
        }
    }
    const float mean = block_sum(sum, scratch) / (float)width;
    float squares = 0.0f;
    for (int column = threadIdx.x; column < width; column += blockDim.x) {
        const float difference = row[column] - mean;
        squares += difference * difference;
    }
    const float scale = 1.0f / sqrtf(block_sum(squares, scratch) / (float)width + float_of(epsilon_bits));
    for (int pack = threadIdx.x; pack < packs; pack += blockDim.x) {
        const Pack<T> factor = ((const Pack<T> *)gamma)[pack], offset = ((const Pack<T> *)beta)[pack];
        Pack<T> result;
#pragma unroll
        for (int i = 0; i < lanes; ++i)
            store(&result.values[i], fmaf((row[pack * lanes + i] - mean) * scale, to_float(factor.values[i]),
                                          to_float(offset.values[i])));
        ((Pack<T> *)out)[start + pack] = result;
    }
}

extern "C" __global__ void __launch_bounds__(256)
    layernorm_fp16(const Half *x, const Half *residual, const Half *gamma, const Half *beta, int width,
                   u32 epsilon_bits, Half *out) {
    layernorm(x, residual, gamma, beta, width, epsilon_bits, out);
}

extern "C" __global__ void __launch_bounds__(256)
    layernorm_fp32(const float *x, const float *residual, const float *gamma, const float *beta, int width,
                   u32 epsilon_bits, float *out) {
    layernorm(x, residual, gamma, beta, width, epsilon_bits, out);
}
