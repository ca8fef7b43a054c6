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

KERNEL_FUNCTION u32 multiply_high(u32 one, u32 other) {
#if defined(__CUDA_ARCH__)
    return __umulhi(one, other);
#else
    return (u32)((u64)one * other >> 32);
#endif
}

// One channel of two rows, each summed along the columns to at most 255 * 2048, becomes an 8-bit value. The weights come
// 16 bits up, so that the high half of a product is the product without its last 16 bits.
KERNEL_FUNCTION u32 blend_rows(u32 upper, u32 lower, u32 weight_upper, u32 weight_lower) {
    return (multiply_high(upper >> 4, weight_upper) + multiply_high(lower >> 4, weight_lower) + 2) >> 2;
}

// One channel of two neighbouring packed pixels, of six bytes in memory's order: bytes CHANNEL and CHANNEL + 3, by the
// weights in the lower and upper half of `weights`.
template <int CHANNEL>
KERNEL_FUNCTION u32 sum_pair(u32 low, u32 high, u32 weights) {
#if defined(__CUDA_ARCH__)
    return __dp2a_lo(weights, __byte_perm(low, high, (CHANNEL + 3) << 4 | CHANNEL), 0u);
#else
    const u64 bytes = (u64)high << 32 | low;
    const u32 first = (u32)(bytes >> (8 * CHANNEL)) & 255u, second = (u32)(bytes >> (8 * (CHANNEL + 3))) & 255u;
    return first * (weights & 0xffffu) + second * (weights >> 16);
#endif
}

// An integer below 2^23 as a float, without the slow conversion: its bits are the last ones of 2^23's neighbours.
KERNEL_FUNCTION float small_to_float(u32 value) { return float_of(0x4b000000u | value) - 8388608.0f; }

struct Rgb {
    int red, green, blue;
};

// BT.601, limited range, in 20-bit fixed point: what OpenCV's COLOR_YUV2RGB_NV12 computes.
KERNEL_FUNCTION Rgb rgb_of_yuv(int y, int u, int v) {
    const int one = 1 << 20, half = 1 << 19;
    const int luma = (y > 16 ? y - 16 : 0) * 1220542;
    u -= 128;
    v -= 128;
    Rgb rgb;
    rgb.red = clamp((luma + half + 1673527 * v) / one, 0, 255);
    rgb.green = clamp((luma + half - 852492 * v - 409993 * u) / one, 0, 255);
    rgb.blue = clamp((luma + half + 2116026 * u) / one, 0, 255);
    return rgb;
}
