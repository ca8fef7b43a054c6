// Kernel `preprocess`: 8-bit images of any sizes become rows of a model's input, one launch for the whole batch.
//
// A thread makes ROWS pixels of one column: their sampling column is the same, and the loads of all of them are in
// flight before the first is used. Neighbouring lanes make neighbouring columns, so that a warp reads whole sectors of
// the image and writes whole sectors of each plane. What the rows of a block sample is found once, in shared memory.
// Packed pixels are read as aligned 32-bit words, two or three for the six bytes of two neighbours; rows of weight 0 are
// not read at all. Blocks are made for the canvas, not for the images: the grid does not depend on the descriptors, and
// a captured launch serves whatever they say later.

#include "preprocess.cuh"

const int ROWS = 4;       // of a thread
const int BLOCK_ROWS = 8; // blockDim.y * ROWS

struct Normalisation {
    float factor[3]; // per channel in the model's order: value * factor + offset
    float offset[3];
    int is_bgr; // whether the model's first channel is blue
    int pad_value;
};

// Where an output row is sampled: bytes from the image's first word to the two rows, and their weights, 16 bits up.
// Both weights are 0 where the canvas shows no image.
struct RowTaps {
    u32 upper, lower, weight_upper, weight_lower;
};

__device__ __forceinline__ RowTaps row_taps(const Image &image, int y) {
    if (y < 0 || y >= image.scaled_height) return {0, 0, 0, 0};
    const Taps taps = taps_at(y, image.scaled_height, image.height);
    const u32 start = (u32)image.pixels & 3u, pitch = (u32)image.pitch_bytes;
    return {start + (u32)clamp(taps.first, 0, image.height - 1) * pitch,
            start + (u32)clamp(taps.first + 1, 0, image.height - 1) * pitch, (u32)taps.weight_first << 16,
            (u32)taps.weight_second << 16};
}

// A load that is not made where it is not needed, and is no branch: the loads of all rows can be in flight together.
// What it gives where it is not made has no meaning, and must have no weight.
__device__ __forceinline__ u32 load_if(bool is_needed, const u32 *address) {
#if defined(__CUDA_ARCH__)
    u32 word;
    asm("{.reg .pred needed; setp.ne.u32 needed, %1, 0; @needed ld.global.nc.u32 %0, [%2];}"
        : "=r"(word)
        : "r"((u32)is_needed), "l"(address));
    return word;
#else
    return is_needed ? *address : 0xdeadbeefu;
#endif
}

// The aligned words around the six bytes of two neighbouring packed pixels.
struct Words {
    u32 first, second, third;
};

__device__ __forceinline__ Words load_pair(bool is_needed, const u32 *image, u32 offset, u32 last_word) {
    const u32 word = offset >> 2;
    const u32 *address = image + word;
    // Beyond the image's last word there may be no memory; pixels of weight 0 alone would come from there.
    return {load_if(is_needed, address), load_if(is_needed && word < last_word, address + 1),
            load_if(is_needed && (offset & 3) == 3 && word + 1 < last_word, address + 2)};
}

struct Sums {
    u32 red, green, blue;
};

__device__ __forceinline__ Sums sum_columns(Words words, u32 offset, u32 weights) {
    const u32 shift = (offset & 3) * 8;
    const u32 low = __funnelshift_r(words.first, words.second, shift);
    const u32 high = __funnelshift_r(words.second, words.third, shift);
    return {sum_pair<0>(low, high, weights), sum_pair<1>(low, high, weights), sum_pair<2>(low, high, weights)};
}

__device__ __forceinline__ Sums blend(Sums upper, Sums lower, RowTaps row) {
    return {blend_rows(upper.red, lower.red, row.weight_upper, row.weight_lower),
            blend_rows(upper.green, lower.green, row.weight_upper, row.weight_lower),
            blend_rows(upper.blue, lower.blue, row.weight_upper, row.weight_lower)};
}

__device__ __forceinline__ bool is_shown(RowTaps row) { return (row.weight_upper | row.weight_lower) != 0; }

// ROWS pixels of packed rows; BLENDS says whether any of them has a second row. `values` stay where nothing is shown.
template <bool BLENDS>
__device__ __forceinline__ void resize_packed(const Image &image, const RowTaps *rows, Taps columns, bool is_inside,
                                              Sums *values) {
    Words upper[ROWS], lower[ROWS];
    const u32 *words = (const u32 *)(image.pixels & ~3ull);
    const u32 start = (u32)image.pixels & 3u, column = (u32)columns.first * 3;
    const u32 last_word = (start + (u32)(image.height - 1) * (u32)image.pitch_bytes + (u32)image.width * 3 - 1) >> 2;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const RowTaps row = rows[i];
        upper[i] = load_pair(is_inside && row.weight_upper, words, row.upper + column, last_word);
        if (BLENDS) lower[i] = load_pair(is_inside && row.weight_lower, words, row.lower + column, last_word);
    }
    const u32 weights = (u32)columns.weight_first | (u32)columns.weight_second << 16;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const RowTaps row = rows[i];
        const Sums above = sum_columns(upper[i], row.upper + column, weights);
        const Sums below = BLENDS ? sum_columns(lower[i], row.lower + column, weights) : above;
        const Sums value = blend(above, below, row);
        if (is_inside && is_shown(row)) values[i] = value;
    }
}

__device__ __forceinline__ Rgb pixel_nv12(const Image &image, int row, int column) {
    const u8 luma = __ldg((const u8 *)(image.pixels + (u64)row * image.pitch_bytes + column));
    const u8 *chroma = (const u8 *)(image.chroma + (u64)(row >> 1) * image.chroma_pitch_bytes + (column & ~1));
    return rgb_of_yuv(luma, __ldg(chroma), __ldg(chroma + 1));
}

__device__ __forceinline__ Sums sum_nv12(const Image &image, int row, Taps taps) {
    row = clamp(row, 0, image.height - 1);
    const Rgb first = pixel_nv12(image, row, taps.first);
    const Rgb second = taps.weight_second ? pixel_nv12(image, row, taps.first + 1) : first;
    return {(u32)(first.red * taps.weight_first + second.red * taps.weight_second),
            (u32)(first.green * taps.weight_first + second.green * taps.weight_second),
            (u32)(first.blue * taps.weight_first + second.blue * taps.weight_second)};
}

__device__ __forceinline__ void resize_nv12(const Image &image, const RowTaps *rows, Taps columns, int y, Sums *values) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        if (!is_shown(rows[i])) continue;
        const int row = taps_at(y + i, image.scaled_height, image.height).first;
        const Sums upper = sum_nv12(image, row, columns);
        values[i] = blend(upper, rows[i].weight_lower ? sum_nv12(image, row + 1, columns) : upper, rows[i]);
    }
}

// The pixels of one thread: what the image gives, the pad value elsewhere.
__device__ __forceinline__ void resize(const Image &image, const RowTaps *rows, int x, int y, Sums *values) {
    bool is_any_shown = false, is_any_blended = false; // the same for a whole warp
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        is_any_shown = is_any_shown || is_shown(rows[i]);
        is_any_blended = is_any_blended || rows[i].weight_lower != 0;
    }
    if (!is_any_shown) return;
    const bool is_inside = x >= 0 && x < image.scaled_width;
    const Taps columns = column_taps(is_inside ? x : 0, image.scaled_width, image.width);
    if (image.format == FORMAT_NV12) {
        if (is_inside) resize_nv12(image, rows, columns, y, values);
    } else if (is_any_blended) {
        resize_packed<true>(image, rows, columns, is_inside, values);
    } else {
        resize_packed<false>(image, rows, columns, is_inside, values);
    }
}

template <typename Out>
__device__ __forceinline__ void preprocess(const Image *images, Out *out, int height, int width, Normalisation scale) {
    __shared__ RowTaps rows[BLOCK_ROWS];
    const Image image = images[blockIdx.z];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    if (thread < BLOCK_ROWS) rows[thread] = row_taps(image, (int)blockIdx.y * BLOCK_ROWS + thread - image.top);
    __syncthreads();
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * BLOCK_ROWS + threadIdx.y * ROWS;
    if (x >= width || y >= height) return;
    const u32 pad = (u32)scale.pad_value;
    Sums values[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) values[i] = {pad, pad, pad};
    resize(image, rows + threadIdx.y * ROWS, x - image.left, y - image.top, values);
    const bool swaps = (image.format == FORMAT_BGR) != (scale.is_bgr != 0);
    const float red_factor = swaps ? scale.factor[2] : scale.factor[0];
    const float red_offset = swaps ? scale.offset[2] : scale.offset[0];
    const float blue_factor = swaps ? scale.factor[0] : scale.factor[2];
    const float blue_offset = swaps ? scale.offset[0] : scale.offset[2];
    const u64 plane = (u64)height * width;
    Out *green = out + (blockIdx.z * 3 + 1) * plane + (u64)y * width + x;
    Out *red = swaps ? green + plane : green - plane, *blue = swaps ? green - plane : green + plane;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        if (y + i >= height) return;
        store(red + i * width, fmaf(small_to_float(values[i].red), red_factor, red_offset));
        store(green + i * width, fmaf(small_to_float(values[i].green), scale.factor[1], scale.offset[1]));
        store(blue + i * width, fmaf(small_to_float(values[i].blue), blue_factor, blue_offset));
    }
}

extern "C" __global__ void __launch_bounds__(256)
    preprocess_fp16(const Image *images, Half *out, int height, int width, Normalisation scale) {
    preprocess(images, out, height, width, scale);
}

extern "C" __global__ void __launch_bounds__(256)
    preprocess_fp32(const Image *images, float *out, int height, int width, Normalisation scale) {
    preprocess(images, out, height, width, scale);
}
