// Kernel `classify`: softmax and the likeliest classes, a block per row.
//
// Rows that are probabilities already stay as they are. The scores are read from the cache again for every rank: with
// a thousand classes that costs less than keeping them sorted. A row with a score that is no number has no classes.

#include "block.cuh"
#include "classify.cuh"

template <typename In>
__device__ __forceinline__ RowFigures figures_of(const In *row, int classes, float *scratch) {
    float least = INFINITY_FLOAT, most = -INFINITY_FLOAT, sum = 0.0f, strange = 0.0f;
    for (int i = threadIdx.x; i < classes; i += blockDim.x) {
        const float score = to_float(row[i]);
        if (is_nan(score) || score == INFINITY_FLOAT) strange = 1.0f;
        least = fminf(least, score);
        most = fmaxf(most, score);
        sum += score;
    }
    RowFigures figures;
    figures.least = -block_max(-least, scratch);
    figures.most = block_max(most, scratch);
    figures.sum = block_sum(sum, scratch);
    figures.is_number = block_max(strange, scratch) == 0.0f && figures.most > -INFINITY_FLOAT;
    return figures;
}

template <typename In>
__device__ __forceinline__ void classify(const In *scores, float *best, int *indices, int classes, int top_k) {
    __shared__ float scratch[MAX_WARPS];
    __shared__ u64 keys[MAX_WARPS];
    const In *row = scores + (u64)blockIdx.x * classes;
    best += (u64)blockIdx.x * top_k;
    indices += (u64)blockIdx.x * top_k;
    const RowFigures figures = figures_of(row, classes, scratch);
    if (!figures.is_number) {
        for (int rank = threadIdx.x; rank < top_k; rank += blockDim.x) {
            best[rank] = NAN_FLOAT;
            indices[rank] = -1;
        }
        return;
    }
    const bool is_ready = is_distribution(figures);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < classes; i += blockDim.x) sum += expf(to_float(row[i]) - figures.most);
    sum = block_sum(sum, scratch);
    u64 above = ~(u64)0;
    for (int rank = 0; rank < top_k; ++rank) {
        u64 key = 0;
        for (int i = threadIdx.x; i < classes; i += blockDim.x) {
            const u64 candidate = rank_key(to_float(row[i]), i);
            if (candidate < above && candidate > key) key = candidate;
        }
        above = block_max(key, keys);
        if (threadIdx.x == 0) {
            const int index = index_of_key(above);
            const float score = to_float(row[index]);
            best[rank] = is_ready ? score : expf(score - figures.most) / sum;
            indices[rank] = index;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
    classify_fp16(const Half *scores, float *best, int *indices, int classes, int top_k) {
    classify(scores, best, indices, classes, top_k);
}

extern "C" __global__ void __launch_bounds__(256)
    classify_fp32(const float *scores, float *best, int *indices, int classes, int top_k) {
    classify(scores, best, indices, classes, top_k);
}
