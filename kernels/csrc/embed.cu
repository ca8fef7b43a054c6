// Kernel `embed`: the mean of a row's unmasked tokens, brought to length 1; a block per row.
//
// Lanes take neighbouring columns, warps take tokens in turn; their sums meet in shared memory. Masked tokens are not
// read, so that what padding holds, numbers or not, changes nothing.

#include "block.cuh"

const int COLUMNS = 32; // blockDim.x
const int TOKENS = 16;  // blockDim.y

// Below this a length counts as 0, and the row stays as it is.
const float LEAST_LENGTH = 1e-12f;

template <typename In>
__device__ __forceinline__ float column_sum(const In *column, const int *mask, int tokens, int width) {
    float sum = 0.0f;
#pragma unroll 4
    for (int token = threadIdx.y; token < tokens; token += TOKENS)
        if (mask[token]) sum += to_float(column[(u64)token * width]);
    return sum;
}

template <typename In>
__device__ __forceinline__ void embed(const In *hidden, const int *mask, float *out, int tokens, int width,
                                      int is_normalized) {
    __shared__ float partial[TOKENS][COLUMNS];
    __shared__ float scratch[MAX_WARPS];
    hidden += (u64)blockIdx.x * tokens * width;
    mask += (u64)blockIdx.x * tokens;
    out += (u64)blockIdx.x * width;
    float counted = 0.0f;
    for (int token = threadIdx.y * COLUMNS + threadIdx.x; token < tokens; token += TOKENS * COLUMNS)
        counted += mask[token] ? 1.0f : 0.0f;
    const float divisor = fmaxf(block_sum(counted, scratch), 1.0f);
    float squares = 0.0f;
    for (int first = 0; first < width; first += COLUMNS) {
        const int column = first + threadIdx.x;
        partial[threadIdx.y][threadIdx.x] = column < width ? column_sum(hidden + column, mask, tokens, width) : 0.0f;
        __syncthreads();
        if (threadIdx.y == 0 && column < width) {
            float sum = 0.0f;
            for (int i = 0; i < TOKENS; ++i) sum += partial[i][threadIdx.x];
            const float mean = sum / divisor;
            out[column] = mean;
            squares += mean * mean;
        }
        __syncthreads();
    }
    const float length = sqrtf(block_sum(squares, scratch));
    if (!is_normalized || length < LEAST_LENGTH || threadIdx.y != 0) return;
    for (int column = threadIdx.x; column < width; column += COLUMNS) out[column] /= length;
}

extern "C" __global__ void __launch_bounds__(512) embed_fp16(const Half *hidden, const int *mask, float *out, int tokens,
                                                             int width, int is_normalized) {
    embed(hidden, mask, out, tokens, width, is_normalized);
}

extern "C" __global__ void __launch_bounds__(512) embed_fp32(const float *hidden, const int *mask, float *out,
                                                             int tokens, int width, int is_normalized) {
    embed(hidden, mask, out, tokens, width, is_normalized);
}
