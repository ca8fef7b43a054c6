// Kernel `embed`: the mean of a row's unmasked tokens, brought to length 1; a block per row.
//
// Lanes take neighbouring columns, 16 bytes of them where width and address allow; warps take tokens in turn, and their
// sums meet in shared memory. Masked tokens are not read: what padding holds, numbers or not, changes nothing.

#include "block.cuh"

const int LANES = 32;  // blockDim.x
const int TOKENS = 16; // blockDim.y

// Below this a length counts as 0, and the row stays as it is.
const float LEAST_LENGTH = 1e-12f;

// COUNT columns, read by one access.
template <typename In, int COUNT>
struct alignas(sizeof(In) * COUNT) Columns {
    In values[COUNT];
};

// The sums over this thread's tokens of COUNT columns, to shared memory: column i of lane l at i * LANES + l.
template <typename In, int COUNT>
__device__ __forceinline__ void sum_tokens(const In *hidden, const int *mask, float *partial, int tokens, int width) {
    float sums[COUNT] = {};
#pragma unroll 4
    for (int token = threadIdx.y; token < tokens; token += TOKENS) {
        if (!mask[token]) continue;
        const Columns<In, COUNT> columns = *(const Columns<In, COUNT> *)(hidden + (u64)token * width);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) sums[i] += to_float(columns.values[i]);
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) partial[i * LANES + threadIdx.x] = sums[i];
}

// Means of all columns, to `out`; gives this thread's part of the sum of their squares.
template <typename In, int COUNT>
__device__ __forceinline__ float write_means(const In *hidden, const int *mask, float *out, int tokens, int width,
                                             float divisor) {
    __shared__ float partial[TOKENS][LANES * COUNT];
    const int thread = threadIdx.y * LANES + threadIdx.x;
    float squares = 0.0f;
    for (int first = 0; first < width; first += LANES * COUNT) {
        const int mine = first + threadIdx.x * COUNT, column = first + thread % LANES * COUNT + thread / LANES;
        if (mine < width) sum_tokens<In, COUNT>(hidden + mine, mask, partial[threadIdx.y], tokens, width);
        __syncthreads();
        if (thread < LANES * COUNT && column < width) {
            float sum = 0.0f;
            for (int i = 0; i < TOKENS; ++i) sum += partial[i][thread];
            const float mean = sum / divisor;
            out[column] = mean;
            squares += mean * mean;
        }
        __syncthreads();
    }
    return squares;
}

template <typename In>
__device__ __forceinline__ void embed(const In *hidden, const int *mask, float *out, int tokens, int width,
                                      int is_normalized) {
    __shared__ float scratch[MAX_WARPS];
    const int thread = threadIdx.y * LANES + threadIdx.x, pack = 16 / sizeof(In);
    hidden += (u64)blockIdx.x * tokens * width;
    mask += (u64)blockIdx.x * tokens;
    out += (u64)blockIdx.x * width;
    float counted = 0.0f;
    for (int token = thread; token < tokens; token += TOKENS * LANES) counted += mask[token] ? 1.0f : 0.0f;
    const float divisor = fmaxf(block_sum(counted, scratch), 1.0f);
    const bool is_packed = width % pack == 0 && (u64)hidden % 16 == 0; // the same for the whole block
    const float squares = is_packed ? write_means<In, 16 / sizeof(In)>(hidden, mask, out, tokens, width, divisor)
                                    : write_means<In, 1>(hidden, mask, out, tokens, width, divisor);
    const float length = sqrtf(block_sum(squares, scratch)); // and its barriers let every thread see all of `out`
    if (!is_normalized || length < LEAST_LENGTH) return;
    for (int column = thread; column < width; column += TOKENS * LANES) out[column] /= length;
}

extern "C" __global__ void __launch_bounds__(512) embed_fp16(const Half *hidden, const int *mask, float *out, int tokens,
                                                             int width, int is_normalized) {
    embed(hidden, mask, out, tokens, width, is_normalized);
}

extern "C" __global__ void __launch_bounds__(512) embed_fp32(const float *hidden, const int *mask, float *out,
                                                             int tokens, int width, int is_normalized) {
    embed(hidden, mask, out, tokens, width, is_normalized);
}
