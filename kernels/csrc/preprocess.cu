// Kernel `preprocess`: 8-bit images of any sizes become rows of a model's input, one launch for the whole batch.
//
// A thread makes two neighbouring pixels of ROWS rows; neighbouring lanes make neighbouring pairs, so that a warp
// reads whole sectors of the image and writes whole lines of each plane. What a block's rows and columns sample is
// found once, in shared memory. Where no pixel needs its neighbour - sizes that shrink by an odd whole number, as 1920
// to 640 - one is read instead of two or four, and no sum is made. Blocks are made for the canvas, not for the images:
// the grid does not depend on the descriptors, and a captured launch serves whatever they say later.

#include "preprocess_rows.cuh"

const int BLOCK_X = 64, BLOCK_Y = 2;
const int TILE_COLUMNS = 2 * BLOCK_X, TILE_ROWS = ROWS * BLOCK_Y;
static_assert(BLOCK_X * BLOCK_Y == TILE_COLUMNS, "a thread finds the taps of one column");

struct Normalisation {
    float factor[3]; // per channel in the model's order: value * factor + offset
    float offset[3];
    int is_bgr; // whether the model's first channel is blue
    int pad_value;
};

__device__ __forceinline__ RowTaps row_taps(const Image &image, int y, int pad_value) {
    if (y < 0 || y >= image.scaled_height) return {0, 0, 0, 0, constant_row(pad_value), false};
    const Taps taps = taps_at(y, image.scaled_height, image.height);
    const u32 upper = clamp(taps.first, 0, image.height - 1), lower = clamp(taps.first + 1, 0, image.height - 1);
    const u32 start = (u32)image.pixels & 3u, pitch = image.pitch_bytes;
    const u32 chroma_start = (u32)image.chroma & 3u, chroma_pitch = image.chroma_pitch_bytes;
    return {start + upper * pitch,
            start + lower * pitch,
            chroma_start + upper / 2 * chroma_pitch,
            chroma_start + lower / 2 * chroma_pitch,
            row_weights(taps.weight_first, taps.weight_second),
            true};
}

__device__ __forceinline__ ColumnTaps sampled_column(const Image &image, int x) {
    if (x < 0 || x >= image.scaled_width) return {0, 0};
    const Taps taps = column_taps(x, image.scaled_width, image.width);
    return {taps.first, (u32)taps.weight_first | (u32)taps.weight_second << 16};
}

struct alignas(8) FloatPair {
    float first, second;
};

__device__ __forceinline__ void store_two(float *place, float first, float second) {
    *(FloatPair *)place = {first, second};
}

__device__ __forceinline__ void store_two(Half *place, float first, float second) {
    *(u32 *)place = pack_halves(first, second);
}

// One channel of a thread's pixels. Two at a time need a place that is a multiple of both, and a second column.
template <typename Out>
__device__ __forceinline__ void store_row(Out *place, float first, float second, bool is_aligned, bool is_last) {
    if (is_aligned) return store_two(place, first, second);
    store(place, first);
    if (!is_last) store(place + 1, second);
}

// Where a thread's two pixels of ROWS rows go, and what their values become.
template <typename Out>
struct Target {
    Out *green;
    int blue; // from green on, and red as far before it
    float red_factor, green_factor, blue_factor, red_offset, green_offset, blue_offset;
    int width, rows; // of the canvas; rows from the first of the thread's on
    bool is_aligned, is_last;

    __device__ __forceinline__ Target(Out *canvas, int height, int width, int x, int y, const Normalisation &scale,
                                      bool swaps)
        : width(width), rows(height - y) {
        const int plane = height * width;
        green = canvas + plane + y * width + x;
        blue = swaps ? -plane : plane;
        red_factor = swaps ? scale.factor[2] : scale.factor[0];
        red_offset = swaps ? scale.offset[2] : scale.offset[0];
        green_factor = scale.factor[1];
        green_offset = scale.offset[1];
        blue_factor = swaps ? scale.factor[0] : scale.factor[2];
        blue_offset = swaps ? scale.offset[0] : scale.offset[2];
        is_aligned = width % 2 == 0 && (u64)canvas % (2 * sizeof(Out)) == 0;
        is_last = x + 1 == width;
    }

    __device__ __forceinline__ void put(int row, const Values *values) {
        if (row >= rows) return;
        Out *place = green + row * width;
        store_row(place - blue, fmaf(values[0].red, red_factor, red_offset),
                  fmaf(values[1].red, red_factor, red_offset), is_aligned, is_last);
        store_row(place, fmaf(values[0].green, green_factor, green_offset),
                  fmaf(values[1].green, green_factor, green_offset), is_aligned, is_last);
        store_row(place + blue, fmaf(values[0].blue, blue_factor, blue_offset),
                  fmaf(values[1].blue, blue_factor, blue_offset), is_aligned, is_last);
    }
};

template <bool IS_PAIR, typename Target>
__device__ __forceinline__ void resize(const Image &image, const RowTaps *rows, const ColumnTaps *taps, int pad_value,
                                       Target &target) {
    const Columns<IS_PAIR> columns(taps, image.width, pad_value);
    bool blends = false; // the same for a whole warp
#pragma unroll
    for (int i = 0; i < ROWS; ++i) blends = blends || rows[i].weights.upper != 2048.0f / 65536;
    if (image.format == FORMAT_NV12) {
        if (blends) blend_nv12(image, rows, columns, target);
        else resize_nv12(image, rows, columns, target);
    } else {
        if (blends) blend_packed(image, rows, columns, target);
        else resize_packed(image, rows, columns, target);
    }
}

template <typename Target>
__device__ __forceinline__ void fill(int value, Target &target) {
    const float pad = (float)value;
    const Values values[2] = {{pad, pad, pad}, {pad, pad, pad}};
#pragma unroll
    for (int i = 0; i < ROWS; ++i) target.put(i, values);
}

template <typename Out>
__device__ __forceinline__ void preprocess(const Image *images, Out *out, int height, int width, Normalisation scale) {
    __shared__ RowTaps rows[TILE_ROWS];
    __shared__ ColumnTaps columns[TILE_COLUMNS];
    const Image image = images[blockIdx.z];
    const bool swaps = (image.format == FORMAT_BGR) != (scale.is_bgr != 0);
    const int x = blockIdx.x * TILE_COLUMNS + threadIdx.x * 2, y = blockIdx.y * TILE_ROWS + threadIdx.y * ROWS;
    Target<Out> target(out + blockIdx.z * 3 * (u64)height * width, height, width, x, y, scale, swaps);
    const int column = (int)blockIdx.x * TILE_COLUMNS - image.left, row = (int)blockIdx.y * TILE_ROWS - image.top;
    const bool is_shown = column < image.scaled_width && column + TILE_COLUMNS > 0 && row < image.scaled_height &&
                          row + TILE_ROWS > 0;
    if (!is_shown) {
        if (x < width) fill(scale.pad_value, target);
        return;
    }
    const int thread = threadIdx.y * BLOCK_X + threadIdx.x;
    const ColumnTaps own = sampled_column(image, column + thread);
    columns[thread] = own;
    if (thread < TILE_ROWS) rows[thread] = row_taps(image, row + thread, scale.pad_value);
    const bool is_pair = __syncthreads_or(own.weights >> 16);
    if (x >= width) return;
    const RowTaps *mine = rows + threadIdx.y * ROWS;
    const ColumnTaps *taps = columns + threadIdx.x * 2;
    if (is_pair) resize<true>(image, mine, taps, scale.pad_value, target);
    else resize<false>(image, mine, taps, scale.pad_value, target);
}

extern "C" __global__ void __launch_bounds__(BLOCK_X *BLOCK_Y, 8)
    preprocess_fp16(const Image *images, Half *out, int height, int width, Normalisation scale) {
    preprocess(images, out, height, width, scale);
}

extern "C" __global__ void __launch_bounds__(BLOCK_X *BLOCK_Y, 8)
    preprocess_fp32(const Image *images, float *out, int height, int width, Normalisation scale) {
    preprocess(images, out, height, width, scale);
}
