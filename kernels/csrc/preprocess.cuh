// Where an output pixel of a resized image comes from, and what it becomes: the arithmetic of the kernel `preprocess`.
//
// The resize is OpenCV's INTER_LINEAR for 8-bit images, bit for bit: sampling positions (i + 0.5) * scale - 0.5 in
// FP32, weights of 11 bits, sums that drop 4, then 16, then 2 bits (OpenCV, modules/imgproc/src/resize.cpp).
#pragma once

#include "common.cuh"

enum PixelFormat { FORMAT_RGB = 0, FORMAT_BGR = 1, FORMAT_NV12 = 2 };

const int WEIGHT_ONE = 2048;

// One image and its place on the canvas; 64 bytes, `specs.IMAGE` in Python.
struct Image {
    u64 pixels;             // address of the top left byte of what is scaled
    u64 chroma;             // NV12: address of the interleaved U and V samples
    int height, width;      // pixels that are scaled, at least 1 each
    int pitch_bytes;        // from one row to the next
    int chroma_pitch_bytes; // NV12: the same of the chroma rows
    int format;             // PixelFormat
    int top, left;          // where the scaled image begins on the canvas; negative where it is cropped
    int scaled_height;      // its size; 0 leaves the whole canvas to the pad value
    int scaled_width;
    int reserved[3];
};

// Two neighbouring samples along one axis: the first one's index (-1 to extent - 1) and the weights, 2048 together.
struct Taps {
    int first;
    int weight_first;
    int weight_second;
};

// Sample positions of output index `index`, of `scaled` outputs over `extent` inputs.
KERNEL_FUNCTION Taps taps_at(int index, int scaled, int extent) {
    // The quotient of exact integers, rounded once: below 2^24 the very float that OpenCV gets through doubles.
    // With at most 16384 outputs of at most 65535 inputs the numerator fits.
    const int numerator = (2 * index + 1) * extent - scaled;
#if defined(__CUDA_ARCH__)
    const float position = __fdiv_rn((float)numerator, (float)(2 * scaled));
#else
    const float position = (float)numerator / (float)(2 * scaled);
#endif
    const float first = floorf(position);
    const float fraction = position - first;
    Taps taps;
    taps.first = (int)first;
#if defined(__CUDA_ARCH__)
    taps.weight_second = __float2int_rn(fraction * WEIGHT_ONE);
    taps.weight_first = __float2int_rn((1.0f - fraction) * WEIGHT_ONE);
#else
    taps.weight_second = (int)lrintf(fraction * WEIGHT_ONE);
    taps.weight_first = (int)lrintf((1.0f - fraction) * WEIGHT_ONE);
#endif
    return taps;
}

// Columns beyond the edge: OpenCV gives the edge's pixel the whole weight.
KERNEL_FUNCTION Taps column_taps(int index, int scaled, int extent) {
    Taps taps = taps_at(index, scaled, extent);
    if (taps.first < 0 || taps.first >= extent - 1) {
        taps.first = taps.first < 0 ? 0 : extent - 1;
        taps.weight_first = WEIGHT_ONE;
        taps.weight_second = 0;
    }
    return taps;
}

// From here to twice as much, floats are the integers: those up to here stand in them as WHOLE + integer, whose bits
// are WHOLE_BITS + integer, and no conversion is needed.
const float WHOLE = 8388608.0f;
const u32 WHOLE_BITS = 0x4b000000u;

// one * other + sum, rounded once, toward 0: where the result is WHOLE or more, what is behind the point is dropped.
KERNEL_FUNCTION float multiply_down(float one, float other, float sum) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rz(one, other, sum);
#else
    const double exact = (double)one * other + sum;
    const float rounded = (float)exact;
    return rounded > exact ? nextafterf(rounded, 0.0f) : rounded;
#endif
}

// The two lowest bytes, by the weights in the lower and upper half of `weights`, at most 255 * 2048 together; counted
// from `start`, which has a float's bits: what comes out has them too.
KERNEL_FUNCTION float sum_two(u32 bytes, u32 weights, u32 start) {
#if defined(__CUDA_ARCH__)
    return float_of(__dp2a_lo(weights, bytes, start));
#else
    return float_of((bytes & 255u) * (weights & 0xffffu) + (bytes >> 8 & 255u) * (weights >> 16) + start);
#endif
}

// The same of one channel of two neighbouring packed pixels, six bytes in memory's order: bytes CHANNEL and CHANNEL +
// 3.
template <int CHANNEL>
KERNEL_FUNCTION float sum_pair(u32 low, u32 high, u32 weights, u32 start) {
#if defined(__CUDA_ARCH__)
    const u32 bytes = __byte_perm(low, high, (CHANNEL + 3) << 4 | CHANNEL);
#else
    const u64 all = (u64)high << 32 | low;
    const u32 bytes = ((u32)(all >> (8 * CHANNEL)) & 255u) | (u32)(all >> (8 * (CHANNEL + 3)) & 255u) << 8;
#endif
    return sum_two(bytes, weights, start);
}

// An output row's weights, by 2^16, and what its values are counted from.
struct RowWeights {
    float upper, lower, rest;
};

KERNEL_FUNCTION RowWeights row_weights(int upper, int lower) {
    return {(float)upper * (1.0f / 65536), (float)lower * (1.0f / 65536), WHOLE - WHOLE / 4 + 0.5f};
}

// A row of no weights, all of `value`.
KERNEL_FUNCTION RowWeights constant_row(int value) { return {0.0f, 0.0f, WHOLE - WHOLE / 4 + 0.5f + (float)value}; }

// Sums of two rows, from WHOLE, become a value of 0 to 255: without 4 bits each, then 16 of the products, then rounded
// to 2 bits less.
KERNEL_FUNCTION float blend_rows(float upper, float lower, RowWeights weights) {
    const float above = multiply_down(upper, 1.0f / 16, WHOLE - WHOLE / 16);
    const float below = multiply_down(lower, 1.0f / 16, WHOLE - WHOLE / 16);
    const float first = multiply_down(above, weights.upper, WHOLE - weights.upper * WHOLE);
    const float both = multiply_down(below, weights.lower, first - weights.lower * WHOLE);
    return multiply_down(both, 0.25f, weights.rest) - WHOLE;
}

// The same where the upper row has all the weight.
KERNEL_FUNCTION float upper_row(float sum) {
    return multiply_down(sum, 1.0f / 2048, WHOLE - WHOLE / 2048 + 0.5f) - WHOLE;
}

// Byte PLACE of a word.
template <int PLACE>
KERNEL_FUNCTION float byte_of(u32 word) {
#if defined(__CUDA_ARCH__)
    return float_of(__byte_perm(word, WHOLE_BITS, 0x7440 | PLACE)) - WHOLE;
#else
    return (float)(word >> (8 * PLACE) & 255u);
#endif
}

struct Rgb {
    int red, green, blue;
};

// BT.601, limited range, in 20-bit fixed point: what OpenCV's COLOR_YUV2RGB_NV12 computes before it clamps to 8 bits.
KERNEL_FUNCTION Rgb rgb_of_yuv(int y, int u, int v) {
    const int half = 1 << 19;
    const int luma = (y > 16 ? y - 16 : 0) * 1220542;
    u -= 128;
    v -= 128;
    return {(luma + half + 1673527 * v) >> 20, (luma + half - 852492 * v - 409993 * u) >> 20,
            (luma + half + 2116026 * u) >> 20};
}

// The two values as bytes, the first one lowest; what is below 0 or above 255 becomes that.
KERNEL_FUNCTION u32 saturated_pair(int first, int second) {
#if defined(__CUDA_ARCH__)
    u32 bytes;
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, 0;" : "=r"(bytes) : "r"(second), "r"(first));
    return bytes;
#else
    return (u32)clamp(first, 0, 255) | (u32)clamp(second, 0, 255) << 8;
#endif
}
