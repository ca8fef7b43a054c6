// Kernel `gemm_wgmma`: out[m][n] = sum of a[m][k] * b[n][k], row-major FP16, sums in FP32, by Hopper's own
// instructions.
//
// A block makes 128 x 256 outputs. Its last warp only begins copies, up to STAGES stages of operands ahead; two groups
// of four warps multiply, 64 rows each, straight from shared memory. Rows, columns and depth are multiples of 128, 256
// and 64.

#include "hopper.cuh"

const int TILE_ROWS = 128, TILE_COLUMNS = 256, STAGES = 4;
const int BOX_ROWS = 128; // of a and of b, that are copied at once
const int MULTIPLYING_THREADS = 256, COPYING_THREADS = 32;
const int LEFT_HALVES = TILE_ROWS * OPERAND_DEPTH, RIGHT_HALVES = TILE_COLUMNS * OPERAND_DEPTH;
const int STAGE_HALVES = LEFT_HALVES + RIGHT_HALVES; // 48 KiB

struct Problem {
    int rows, columns, depth;
};

// A tile's first row and column. Blocks that run together share rows of a and columns of b: GROUP rows of tiles at a
// time, for the L2 cache.
struct Place {
    int row, column;
};

__device__ __forceinline__ Place place_of(int tile, Problem problem) {
    const int group = 8, down = problem.rows / TILE_ROWS, across = problem.columns / TILE_COLUMNS;
    const int first = tile / (group * across) * group, within = tile % (group * across);
    const int height = down - first < group ? down - first : group;
    return {(first + within % height) * TILE_ROWS, within / height * TILE_COLUMNS};
}

// The stages of operands in shared memory, and who may touch them.
struct Stages {
    Half *memory;
    Barrier *full, *empty;
    int index;
    u32 parity; // of the round through the stages

    __device__ __forceinline__ Half *left() const { return memory + index * STAGE_HALVES; }
    __device__ __forceinline__ Half *right() const { return left() + LEFT_HALVES; }

    __device__ __forceinline__ void advance() {
        if (++index < STAGES) return;
        index = 0;
        parity ^= 1;
    }
};

__device__ __forceinline__ void copy_tiles(Stages stages, const TensorMap &a, const TensorMap &b, Place place,
                                           int depth) {
    for (int done = 0; done < depth; done += OPERAND_DEPTH) {
        Barrier *full = stages.full + stages.index;
        wait(stages.empty + stages.index, stages.parity ^ 1);
        arrive_and_expect(full, STAGE_HALVES * sizeof(Half));
        copy_box(stages.left(), a, place.row, done, full);
        for (int column = 0; column < TILE_COLUMNS; column += BOX_ROWS)
            copy_box(stages.right() + column * OPERAND_DEPTH, b, place.column + column, done, full);
        stages.advance();
    }
}

// 64 x 256 outputs of a group of warps; what it has read it releases while the next products are under way.
__device__ __forceinline__ void multiply_tile(float *sums, Stages stages, int group, int depth) {
    Barrier *before = nullptr;
    for (int done = 0; done < depth; done += OPERAND_DEPTH) {
        wait(stages.full + stages.index, stages.parity);
        const Half *left = stages.left() + group * 64 * OPERAND_DEPTH, *right = stages.right();
        begin_products();
#pragma unroll
        for (int k = 0; k < OPERAND_DEPTH; k += MULTIPLY_DEPTH) multiply_64x256x16(sums, left + k, right + k);
        commit_products();
        if (before) {
            wait_for_products<1>();
            if (threadIdx.x % 32 == 0) arrive(before);
        }
        before = stages.empty + stages.index;
        stages.advance();
    }
    wait_for_products<0>();
}

// Lane q of every four lanes gets item q of all four: so that each can store 16 bytes of a row.
__device__ __forceinline__ void transpose_four(u32 *items) {
    const bool is_odd = threadIdx.x & 1, is_high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const u32 got = __shfl_xor_sync(0xffffffffu, is_odd ? items[i] : items[i + 1], 1);
        if (is_odd) items[i] = got;
        else items[i + 1] = got;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const u32 got = __shfl_xor_sync(0xffffffffu, is_high ? items[i] : items[i + 2], 2);
        if (is_high) items[i] = got;
        else items[i + 2] = got;
    }
}

// Rows lane / 4 and lane / 4 + 8 of a warp's 16.
__device__ __forceinline__ void store_rows(const float *sums, Half *out, int columns) {
    const int quarter = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        uint4 *row = (uint4 *)(out + (u64)(threadIdx.x % 32 / 4 + half * 8) * columns);
#pragma unroll
        for (int j = 0; j < TILE_COLUMNS / 8; j += 4) {
            u32 items[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                items[i] = pack_halves(sums[(j + i) * 4 + half * 2], sums[(j + i) * 4 + half * 2 + 1]);
            transpose_four(items);
            row[j + quarter] = {items[0], items[1], items[2], items[3]};
        }
    }
}

extern "C" __global__ void __launch_bounds__(MULTIPLYING_THREADS + COPYING_THREADS, 1)
    gemm_wgmma(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, Half *out, Problem problem) {
    DYNAMIC_SHARED(Half, memory);
    __shared__ Barrier full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            initialise(full + stage, 1);
            initialise(empty + stage, MULTIPLYING_THREADS / 32);
        }
        publish_barriers();
    }
    __syncthreads();
    const Stages stages = {first_tile(memory), full, empty, 0, 0};
    const Place place = place_of(blockIdx.x, problem);
    if (threadIdx.x >= MULTIPLYING_THREADS) {
        if (threadIdx.x == MULTIPLYING_THREADS) copy_tiles(stages, a, b, place, problem.depth);
        return;
    }
    float sums[TILE_COLUMNS / 2] = {};
    multiply_tile(sums, stages, threadIdx.x / 128, problem.depth);
    const int row = place.row + threadIdx.x / 32 * 16;
    store_rows(sums, out + (u64)row * problem.columns + place.column, problem.columns);
}
