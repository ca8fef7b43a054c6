// Scores to probabilities and ranks: the arithmetic of the kernel `classify`.
#pragma once

#include "common.cuh"

// How far from 1 a row's sum may be for it to count as probabilities already; FP16 moves it by half of this.
const float SUM_TOLERANCE = 1e-3f;

// What a row's scores say about it.
struct RowFigures {
    float least, most, sum;
    bool is_number;
};

KERNEL_FUNCTION bool is_distribution(RowFigures row) {
    return row.least >= 0.0f && fabsf(row.sum - 1.0f) <= SUM_TOLERANCE;
}

// The higher the score the larger; of equal scores the lower index is the larger. Never 0.
KERNEL_FUNCTION u64 rank_key(float score, int index) { return ((u64)ordered(score) << 32) | (0xffffffffu - (u32)index); }

KERNEL_FUNCTION int index_of_key(u64 key) { return (int)(0xffffffffu - (u32)key); }
