// Kernels `peaks`: what the device itself reaches, for rooflines: copying, FP32 multiply-adds, FP16 matrix products.

#include "tensor_core.cuh"

// Copies 16-byte words; a thread keeps four loads in flight, and nothing is kept in the caches for later.
extern "C" __global__ void __launch_bounds__(256) peak_copy(const uint4 *source, uint4 *target, u64 words) {
    const u64 first = (u64)blockIdx.x * 1024 + threadIdx.x;
    uint4 values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + i * 256 < words) values[i] = __ldcs(source + first + i * 256);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (first + i * 256 < words) __stcs(target + first + i * 256, values[i]);
}

// Eight chains of multiply-adds a thread; 16 * iterations floating-point operations each.
extern "C" __global__ void __launch_bounds__(256) peak_fma(float *out, int iterations, float factor) {
    float chains[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) chains[i] = (float)(threadIdx.x + i);
#pragma unroll 16
    for (int step = 0; step < iterations; ++step)
#pragma unroll
        for (int i = 0; i < 8; ++i) chains[i] = fmaf(chains[i], factor, 1.0f);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += chains[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// out[m][n] = sum of a[m][k] * b[n][k]: all row-major FP16, sums in FP32. The baseline: a warp makes 16 x 8 outputs and
// reads its fragments from global memory, each of them as often as there are warps that need it.
extern "C" __global__ void __launch_bounds__(128)
    gemm_naive(const Half *a, const Half *b, Half *out, int rows, int columns, int depth) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = blockIdx.y * 16 + lane / 4, column = (blockIdx.x * 4 + warp) * 8;
    if (column >= columns) return;
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const u32 *upper = (const u32 *)(a + (u64)row * depth), *lower = (const u32 *)(a + (u64)(row + 8) * depth);
    const u32 *other = (const u32 *)(b + (u64)(column + lane / 4) * depth);
    for (int k = lane % 4; k < depth / 2; k += 8) {
        const u32 left[4] = {upper[k], lower[k], upper[k + 4], lower[k + 4]};
        const u32 right[2] = {other[k], other[k + 4]};
        multiply_16x8x16(sums, left, right);
    }
    u32 *place = (u32 *)(out + (u64)row * columns + column) + lane % 4;
    place[0] = pack_halves(sums[0], sums[1]);
    place[(u64)4 * columns] = pack_halves(sums[2], sums[3]);
}

const int TILE_ROWS = 128, TILE_COLUMNS = 256, TILE_DEPTH = 32, STAGES = 4;
const int TILE_THREADS = 256;                                            // 2 x 4 warps of 64 x 64 outputs
const int STAGE_HALVES = (TILE_ROWS + TILE_COLUMNS) * TILE_DEPTH;        // 24 KiB
const int CHUNKS = TILE_DEPTH / 8;                                       // of 16 bytes in a row of a tile

// Where chunk `chunk` of row `row` lies. Two rows share 128 bytes, all banks; the chunks of eight rows that `ldmatrix`
// reads at once, or that eight threads write, then lie in different banks.
__device__ __forceinline__ int swizzled(int row, int chunk) { return row * TILE_DEPTH + ((chunk ^ (row >> 1)) & 3) * 8; }

// Begins to copy TILE_DEPTH columns of `count` rows; 16 bytes a thread and step.
__device__ __forceinline__ void load_tile(Half *tile, const Half *source, int count, int depth) {
    for (int i = threadIdx.x; i < count * CHUNKS; i += TILE_THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        copy_16_bytes(tile + swizzled(row, chunk), source + (u64)row * depth + chunk * 8);
    }
}

__device__ __forceinline__ void load_stage(Half *stages, const Half *a, const Half *b, int step, int depth) {
    Half *stage = stages + (step % STAGES) * STAGE_HALVES;
    load_tile(stage, a + step * TILE_DEPTH, TILE_ROWS, depth);
    load_tile(stage + TILE_ROWS * TILE_DEPTH, b + step * TILE_DEPTH, TILE_COLUMNS, depth);
}

// 64 x 64 outputs of a warp gain TILE_DEPTH products each.
__device__ __forceinline__ void multiply_stage(float sums[4][8][4], const Half *a, const Half *b) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < TILE_DEPTH / 16; ++half) {
        u32 left[4][4], right[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            load_matrices(left[i], a + swizzled(i * 16 + lane % 16, half * 2 + lane / 16));
            load_matrices(right[i], b + swizzled(i * 16 + lane % 8 + lane / 16 * 8, half * 2 + lane / 8 % 2));
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j) multiply_16x8x16(sums[i][j], left[i], right[j / 2] + j % 2 * 2);
    }
}

// The same product for rows, columns and depth that are multiples of 128, 256 and 32: tiles in shared memory, loaded
// three stages ahead, each element read from it by four or two warps.
extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    gemm_tiled(const Half *a, const Half *b, Half *out, int rows, int columns, int depth) {
    DYNAMIC_SHARED(Half, stages);
    // Blocks that run together share rows of a and columns of b: GROUP rows of tiles at a time, for the L2 cache.
    const int group = 8, tiles_down = rows / TILE_ROWS, tiles_across = columns / TILE_COLUMNS;
    const int first = blockIdx.x / (group * tiles_across) * group;
    const int height = tiles_down - first < group ? tiles_down - first : group;
    const int within = blockIdx.x % (group * tiles_across);
    const int tile_row = (first + within % height) * TILE_ROWS, tile_column = within / height * TILE_COLUMNS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 64;
    a += (u64)tile_row * depth;
    b += (u64)tile_column * depth;
    float sums[4][8][4] = {};
    const int steps = depth / TILE_DEPTH;
    for (int step = 0; step < STAGES - 1; ++step) {
        if (step < steps) load_stage(stages, a, b, step, depth);
        commit_copies();
    }
    for (int step = 0; step < steps; ++step) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps) load_stage(stages, a, b, step + STAGES - 1, depth);
        commit_copies();
        const Half *stage = stages + (step % STAGES) * STAGE_HALVES;
        multiply_stage(sums, stage + warp_row * TILE_DEPTH, stage + (TILE_ROWS + warp_column) * TILE_DEPTH);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int row = tile_row + warp_row + i * 16 + lane / 4, column = tile_column + warp_column + j * 8;
            u32 *place = (u32 *)(out + (u64)row * columns + column) + lane % 4;
            place[0] = pack_halves(sums[i][j][0], sums[i][j][1]);
            place[(u64)4 * columns] = pack_halves(sums[i][j][2], sums[i][j][3]);
        }
}
