// What a thread of the kernel `preprocess` samples, loads and computes: two neighbouring pixels of ROWS output rows, of
// packed images or NV12.
//
// Bytes are read as aligned 32-bit words, as many as the samples need and no more: there may be no memory beyond the
// image. The loads of some rows are in flight together, before the first is used; of how many, the registers limit.
#pragma once

#include "preprocess.cuh"

#if defined(__CUDACC__) || defined(EMULATED)

const int ROWS = 4;        // of a thread
const int PLAIN_ROWS = 4;   // whose loads are in flight together, where each is made of one
const int BLENDED_ROWS = 2; // whose loads are in flight together, where each is made of two
const int NV12_ROWS = 2;    // the same of NV12, where each is made of one

// Where an output row is sampled, in bytes from the words that the image's planes begin in.
struct alignas(16) RowTaps {
    u32 upper, lower, chroma_upper, chroma_lower;
    RowWeights weights; // both 0 where the canvas shows no image
    int is_shown;
};

// An output column's first pixel, and its weights in the lower and upper half; no weights where no image is shown.
struct ColumnTaps {
    int first;
    u32 weights;
};

struct Values {
    float red, green, blue;
};

// A load that is not made where it is not needed, and is no branch: the loads of all rows can be in flight together.
// What it gives where it is not made has no meaning, and must have no weight.
__device__ __forceinline__ u32 load_if(bool is_needed, const u8 *address) {
#if defined(__CUDA_ARCH__)
    u32 word;
    asm("{.reg .pred needed; setp.ne.u32 needed, %1, 0; @needed ld.global.nc.u32 %0, [%2];}"
        : "=r"(word)
        : "r"((u32)is_needed), "l"(address));
    return word;
#else
    return is_needed ? *(const u32 *)address : 0xdeadbeefu;
#endif
}

// The words around COUNT bytes, one to six.
struct Words {
    u32 first, second, third;
};

__device__ __forceinline__ Words load_bytes(const u8 *plane, u32 offset, u32 count) {
    const u8 *address = plane + (offset & ~3u);
    const u32 end = (offset & 3) + count;
    return {load_if(true, address), load_if(end > 4, address + 4), load_if(end > 8, address + 8)};
}

// Its bytes from the first one on: eight, of which those beyond COUNT have no meaning.
struct Bytes {
    u32 low, high;
};

__device__ __forceinline__ Bytes bytes_of(Words words, u32 offset) {
    const u32 shift = offset * 8;
    return {__funnelshift_r(words.first, words.second, shift), __funnelshift_r(words.second, words.third, shift)};
}

// A thread's two columns. IS_PAIR says that a second pixel has a weight in some column of the block: then two pixels
// are read for every column, and at the right edge they end, not begin, with the one that counts.
template <bool IS_PAIR>
struct Columns {
    u32 first[2], weights[2], start[2];
    int pad_value;

    __device__ __forceinline__ Columns(const ColumnTaps *taps, int width, int pad) {
        pad_value = pad;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const bool is_last = IS_PAIR && taps[j].first == width - 1;
            first[j] = (u32)(is_last ? width - 2 : taps[j].first);
            weights[j] = is_last ? taps[j].weights << 16 : taps[j].weights;
            // A column of no weights sums to what the pad value would.
            start[j] = WHOLE_BITS + (weights[j] ? 0u : (u32)pad * WEIGHT_ONE);
        }
    }
};

template <bool IS_PAIR>
__device__ __forceinline__ Values upper_values(Bytes above, u32 weights, u32 start, int pad_value) {
    if (IS_PAIR)
        return {upper_row(sum_pair<0>(above.low, above.high, weights, start)),
                upper_row(sum_pair<1>(above.low, above.high, weights, start)),
                upper_row(sum_pair<2>(above.low, above.high, weights, start))};
    const float pad = (float)pad_value;
    return {weights ? byte_of<0>(above.low) : pad, weights ? byte_of<1>(above.low) : pad,
            weights ? byte_of<2>(above.low) : pad};
}

__device__ __forceinline__ Values blended_values(Bytes above, Bytes below, u32 weights, u32 start, RowWeights row) {
    return {blend_rows(sum_pair<0>(above.low, above.high, weights, start),
                       sum_pair<0>(below.low, below.high, weights, start), row),
            blend_rows(sum_pair<1>(above.low, above.high, weights, start),
                       sum_pair<1>(below.low, below.high, weights, start), row),
            blend_rows(sum_pair<2>(above.low, above.high, weights, start),
                       sum_pair<2>(below.low, below.high, weights, start), row)};
}

template <bool IS_PAIR, typename Target>
__device__ __forceinline__ void resize_packed(const Image &image, const RowTaps *rows, const Columns<IS_PAIR> &columns,
                                              Target &target) {
    const u8 *plane = (const u8 *)(image.pixels & ~3ull);
#pragma unroll 1
    for (int done = 0; done < ROWS; done += PLAIN_ROWS) {
        Words words[PLAIN_ROWS][2];
#pragma unroll
        for (int i = 0; i < PLAIN_ROWS; ++i)
#pragma unroll
            for (int j = 0; j < 2; ++j)
                words[i][j] = load_bytes(plane, rows[done + i].upper + columns.first[j] * 3, IS_PAIR ? 6 : 3);
#pragma unroll
        for (int i = 0; i < PLAIN_ROWS; ++i) {
            Values values[2];
#pragma unroll
            for (int j = 0; j < 2; ++j)
                values[j] = upper_values<IS_PAIR>(bytes_of(words[i][j], rows[done + i].upper + columns.first[j] * 3),
                                                  columns.weights[j], columns.start[j], columns.pad_value);
            target.put(done + i, values);
        }
    }
}

template <bool IS_PAIR, typename Target>
__device__ __forceinline__ void blend_packed(const Image &image, const RowTaps *rows, const Columns<IS_PAIR> &columns,
                                             Target &target) {
    const u8 *plane = (const u8 *)(image.pixels & ~3ull);
#pragma unroll 1
    for (int done = 0; done < ROWS; done += BLENDED_ROWS) {
        Words upper[BLENDED_ROWS][2], lower[BLENDED_ROWS][2];
#pragma unroll
        for (int i = 0; i < BLENDED_ROWS; ++i)
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                upper[i][j] = load_bytes(plane, rows[done + i].upper + columns.first[j] * 3, IS_PAIR ? 6 : 3);
                lower[i][j] = load_bytes(plane, rows[done + i].lower + columns.first[j] * 3, IS_PAIR ? 6 : 3);
            }
#pragma unroll
        for (int i = 0; i < BLENDED_ROWS; ++i) {
            const RowTaps &row = rows[done + i];
            Values values[2];
#pragma unroll
            for (int j = 0; j < 2; ++j)
                values[j] = blended_values(bytes_of(upper[i][j], row.upper + columns.first[j] * 3),
                                           bytes_of(lower[i][j], row.lower + columns.first[j] * 3), columns.weights[j],
                                           columns.start[j], row.weights);
            target.put(done + i, values);
        }
    }
}

// Sums of the two pixels of a row, each from its luma and the chroma of its 2 x 2 pixels.
template <bool IS_PAIR>
__device__ __forceinline__ Values sum_yuv(u32 luma, u32 chroma, bool is_odd, u32 weights, u32 start) {
    const Rgb first = rgb_of_yuv(luma & 255u, chroma & 255u, chroma >> 8 & 255u);
    Rgb second = {0, 0, 0};
    if (IS_PAIR) {
        const u32 next = is_odd ? chroma >> 16 : chroma;
        second = rgb_of_yuv(luma >> 8 & 255u, next & 255u, next >> 8 & 255u);
    }
    return {sum_two(saturated_pair(first.red, second.red), weights, start),
            sum_two(saturated_pair(first.green, second.green), weights, start),
            sum_two(saturated_pair(first.blue, second.blue), weights, start)};
}

// Luma and chroma of a thread's columns in one row of the image.
struct YuvWords {
    Words luma[2], chroma[2];
};

template <bool IS_PAIR>
__device__ __forceinline__ YuvWords load_yuv(const Image &image, u32 luma, u32 chroma,
                                             const Columns<IS_PAIR> &columns) {
    const u8 *luma_plane = (const u8 *)(image.pixels & ~3ull), *chroma_plane = (const u8 *)(image.chroma & ~3ull);
    YuvWords words;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        const u32 first = columns.first[j];
        words.luma[j] = load_bytes(luma_plane, luma + first, IS_PAIR ? 2 : 1);
        words.chroma[j] = load_bytes(chroma_plane, chroma + (first & ~1u), IS_PAIR && (first & 1) ? 4 : 2);
    }
    return words;
}

template <bool IS_PAIR>
__device__ __forceinline__ Values sums_of(const YuvWords &words, u32 luma, u32 chroma,
                                          const Columns<IS_PAIR> &columns, int j) {
    const u32 first = columns.first[j];
    return sum_yuv<IS_PAIR>(bytes_of(words.luma[j], luma + first).low,
                            bytes_of(words.chroma[j], chroma + (first & ~1u)).low, first & 1, columns.weights[j],
                            columns.start[j]);
}

template <bool IS_PAIR, typename Target>
__device__ __forceinline__ void resize_nv12(const Image &image, const RowTaps *rows, const Columns<IS_PAIR> &columns,
                                            Target &target) {
#pragma unroll 1
    for (int done = 0; done < ROWS; done += NV12_ROWS) {
        YuvWords words[NV12_ROWS];
#pragma unroll
        for (int i = 0; i < NV12_ROWS; ++i)
            words[i] = load_yuv(image, rows[done + i].upper, rows[done + i].chroma_upper, columns);
#pragma unroll
        for (int i = 0; i < NV12_ROWS; ++i) {
            Values values[2];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const Values sums = sums_of(words[i], rows[done + i].upper, rows[done + i].chroma_upper, columns, j);
                values[j] = {upper_row(sums.red), upper_row(sums.green), upper_row(sums.blue)};
            }
            target.put(done + i, values);
        }
    }
}

template <bool IS_PAIR, typename Target>
__device__ __forceinline__ void blend_nv12(const Image &image, const RowTaps *rows, const Columns<IS_PAIR> &columns,
                                           Target &target) {
#pragma unroll 1
    for (int i = 0; i < ROWS; ++i) {
        const RowTaps &row = rows[i];
        const YuvWords upper = load_yuv(image, row.upper, row.chroma_upper, columns);
        const YuvWords lower = load_yuv(image, row.lower, row.chroma_lower, columns);
        Values values[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const Values above = sums_of(upper, row.upper, row.chroma_upper, columns, j);
            const Values below = sums_of(lower, row.lower, row.chroma_lower, columns, j);
            values[j] = {blend_rows(above.red, below.red, row.weights),
                         blend_rows(above.green, below.green, row.weights),
                         blend_rows(above.blue, below.blue, row.weights)};
        }
        target.put(i, values);
    }
}

#endif
