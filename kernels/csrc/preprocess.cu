// Kernel `preprocess`: 8-bit images of any sizes become rows of a model's input, one launch for the whole batch.
//
// A thread makes ROWS pixels of one column: their sampling column is the same, and the loads of all of them are in
// flight before the first is used. Neighbouring lanes make neighbouring columns, so that a warp reads whole sectors of
// the image and writes whole sectors of each plane. Packed pixels are read as aligned 32-bit words, three for the six
// bytes of two neighbours; a row or column of weight 0 is not read at all. Blocks are made for the canvas, not for the
// images: the grid does not depend on the descriptors, and a captured launch serves whatever they say later.

#include "preprocess.cuh"

struct Normalisation {
    float factor[3]; // per channel in the model's order: value * factor + offset
    float offset[3];
    int is_bgr; // whether the model's first channel is blue
    int pad_value;
};

// A load that is not made where it is not needed, and is no branch: the loads of all rows can be in flight together.
__device__ __forceinline__ u32 load_if(bool is_needed, u64 address) {
#if defined(__CUDA_ARCH__)
    u32 word;
    asm("{.reg .pred needed; setp.ne.u32 needed, %1, 0; mov.u32 %0, 0; @needed ld.global.nc.u32 %0, [%2];}"
        : "=r"(word)
        : "r"((u32)is_needed), "l"(address));
    return word;
#else
    return is_needed ? *(const u32 *)address : 0;
#endif
}

// The aligned words around the six bytes of two neighbouring packed pixels.
struct Words {
    u32 first, second, third;
};

__device__ __forceinline__ Words load_pair(bool is_needed, u64 address, u64 last_word) {
    const u64 word = address & ~3ull;
    // Beyond the image's last word there may be no memory; pixels of weight 0 alone would come from there.
    return {load_if(is_needed, word), load_if(is_needed && word + 4 <= last_word, word + 4),
            load_if(is_needed && (address & 3) == 3 && word + 8 <= last_word, word + 8)};
}

__device__ __forceinline__ Rgb sum_columns(Words words, u32 offset, Taps taps) {
    const u32 low = __funnelshift_r(words.first, words.second, offset * 8);
    const u32 high = __funnelshift_r(words.second, words.third, offset * 8);
    return {(int)(low & 255u) * taps.weight_first + (int)(low >> 24) * taps.weight_second,
            (int)((low >> 8) & 255u) * taps.weight_first + (int)(high & 255u) * taps.weight_second,
            (int)((low >> 16) & 255u) * taps.weight_first + (int)((high >> 8) & 255u) * taps.weight_second};
}

__device__ __forceinline__ Rgb blend(Rgb upper, Rgb lower, Taps rows) {
    return {blend_rows(upper.red, lower.red, rows.weight_first, rows.weight_second),
            blend_rows(upper.green, lower.green, rows.weight_first, rows.weight_second),
            blend_rows(upper.blue, lower.blue, rows.weight_first, rows.weight_second)};
}

// Where an output row lies in the image.
struct RowPair {
    Taps taps;
    int upper, lower;
    bool is_inside;
};

__device__ __forceinline__ RowPair row_pair(const Image &image, int y, bool is_inside) {
    RowPair pair;
    pair.is_inside = is_inside && y >= 0 && y < image.scaled_height;
    pair.taps = taps_at(pair.is_inside ? y : 0, max(image.scaled_height, 1), image.height);
    pair.upper = clamp(pair.taps.first, 0, image.height - 1);
    pair.lower = pair.taps.weight_second ? clamp(pair.taps.first + 1, 0, image.height - 1) : pair.upper;
    return pair;
}

template <int ROWS>
__device__ __forceinline__ void resize_packed(const Image &image, const RowPair *pairs, Taps columns, Rgb *values) {
    Words upper[ROWS], lower[ROWS];
    const u64 end = image.pixels + (u64)(image.height - 1) * image.pitch_bytes + (u64)image.width * 3 - 1;
    const u64 last_word = end & ~3ull, column = image.pixels + (u64)columns.first * 3;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const RowPair &pair = pairs[i];
        upper[i] = load_pair(pair.is_inside, column + (u64)pair.upper * image.pitch_bytes, last_word);
        lower[i] = load_pair(pair.is_inside && pair.lower != pair.upper,
                             column + (u64)pair.lower * image.pitch_bytes, last_word);
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const RowPair &pair = pairs[i];
        const u32 from_upper = (u32)(column + (u64)pair.upper * image.pitch_bytes) & 3u;
        const u32 from_lower = (u32)(column + (u64)pair.lower * image.pitch_bytes) & 3u;
        const Rgb above = sum_columns(upper[i], from_upper, columns);
        const Rgb below = pair.lower != pair.upper ? sum_columns(lower[i], from_lower, columns) : above;
        const Rgb value = blend(above, below, pair.taps);
        values[i] = pair.is_inside ? value : values[i];
    }
}

__device__ __forceinline__ Rgb pixel_nv12(const Image &image, int row, int column) {
    const u8 luma = __ldg((const u8 *)(image.pixels + (u64)row * image.pitch_bytes + column));
    const u8 *chroma = (const u8 *)(image.chroma + (u64)(row >> 1) * image.chroma_pitch_bytes + (column & ~1));
    return rgb_of_yuv(luma, __ldg(chroma), __ldg(chroma + 1));
}

__device__ __forceinline__ Rgb sum_nv12(const Image &image, int row, Taps taps) {
    const Rgb first = pixel_nv12(image, row, taps.first);
    const Rgb second = taps.weight_second ? pixel_nv12(image, row, taps.first + 1) : first;
    return {first.red * taps.weight_first + second.red * taps.weight_second,
            first.green * taps.weight_first + second.green * taps.weight_second,
            first.blue * taps.weight_first + second.blue * taps.weight_second};
}

template <int ROWS>
__device__ __forceinline__ void resize_nv12(const Image &image, const RowPair *pairs, Taps columns, Rgb *values) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        if (!pairs[i].is_inside) continue;
        const Rgb upper = sum_nv12(image, pairs[i].upper, columns);
        values[i] = blend(upper, sum_nv12(image, pairs[i].lower, columns), pairs[i].taps);
    }
}

template <typename Out, int ROWS>
__device__ __forceinline__ void preprocess(const Image *images, Out *out, int height, int width, Normalisation scale) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y0 = (blockIdx.y * blockDim.y + threadIdx.y) * ROWS;
    if (x >= width || y0 >= height) return;
    const Image image = images[blockIdx.z];
    const int column = x - image.left;
    const bool is_inside = column >= 0 && column < image.scaled_width;
    const Taps columns = column_taps(is_inside ? column : 0, max(image.scaled_width, 1), image.width);
    RowPair pairs[ROWS];
    Rgb values[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        pairs[i] = row_pair(image, y0 + i - image.top, is_inside);
        values[i] = {scale.pad_value, scale.pad_value, scale.pad_value};
    }
    if (image.format == FORMAT_NV12)
        resize_nv12<ROWS>(image, pairs, columns, values);
    else
        resize_packed<ROWS>(image, pairs, columns, values);
    const bool swaps = (image.format == FORMAT_BGR) != (scale.is_bgr != 0);
    const u64 plane = (u64)height * width;
    Out *row = out + blockIdx.z * 3 * plane + (u64)y0 * width + x;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        if (y0 + i >= height) return;
        const int first = swaps ? values[i].blue : values[i].red, third = swaps ? values[i].red : values[i].blue;
        Out *pixel = row + (u64)i * width;
        store(pixel, fmaf((float)first, scale.factor[0], scale.offset[0]));
        store(pixel + plane, fmaf((float)values[i].green, scale.factor[1], scale.offset[1]));
        store(pixel + 2 * plane, fmaf((float)third, scale.factor[2], scale.offset[2]));
    }
}

extern "C" __global__ void __launch_bounds__(256)
    preprocess_fp16(const Image *images, Half *out, int height, int width, Normalisation scale) {
    preprocess<Half, 4>(images, out, height, width, scale);
}

extern "C" __global__ void __launch_bounds__(256)
    preprocess_fp32(const Image *images, float *out, int height, int width, Normalisation scale) {
    preprocess<float, 4>(images, out, height, width, scale);
}
