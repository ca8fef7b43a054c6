// The device functions of kernels/csrc, compiled for the host and callable through ctypes.

#include "classify.cuh"
#include "common.cuh"
#include "detect.cuh"
#include "preprocess.cuh"

extern "C" {

u16 host_to_half(float value) { return to_half(value).bits; }

float host_to_float(u16 bits) { return to_float(Half{bits}); }

void host_taps(int scaled, int extent, int is_column, int *taps) {
    for (int index = 0; index < scaled; ++index) {
        const Taps found = is_column ? column_taps(index, scaled, extent) : taps_at(index, scaled, extent);
        taps[3 * index] = found.first;
        taps[3 * index + 1] = found.weight_first;
        taps[3 * index + 2] = found.weight_second;
    }
}

float host_blend(int upper, int lower, int weight_upper, int weight_lower) {
    return blend_rows(WHOLE + (float)upper, WHOLE + (float)lower, row_weights(weight_upper, weight_lower));
}

float host_constant_row(int upper, int lower, int value) {
    return blend_rows(WHOLE + (float)upper, WHOLE + (float)lower, constant_row(value));
}

float host_upper_row(int sum) { return upper_row(WHOLE + (float)sum); }

void host_sums(u32 low, u32 high, u32 weights, float *sums) {
    sums[0] = sum_pair<0>(low, high, weights, WHOLE_BITS) - WHOLE;
    sums[1] = sum_pair<1>(low, high, weights, WHOLE_BITS) - WHOLE;
    sums[2] = sum_pair<2>(low, high, weights, WHOLE_BITS) - WHOLE;
    sums[3] = sum_two(low, weights, WHOLE_BITS) - WHOLE;
}

void host_bytes(u32 word, float *bytes) {
    bytes[0] = byte_of<0>(word);
    bytes[1] = byte_of<1>(word);
    bytes[2] = byte_of<2>(word);
}

u32 host_saturated_pair(int first, int second) { return saturated_pair(first, second); }

void host_rgb_of_yuv(int y, int u, int v, int *rgb) {
    const Rgb found = rgb_of_yuv(y, u, v);
    rgb[0] = found.red;
    rgb[1] = found.green;
    rgb[2] = found.blue;
}

u64 host_rank_key(float score, int index) { return rank_key(score, index); }

int host_index_of_key(u64 key) { return index_of_key(key); }

u64 host_candidate_key(float score, int anchor, int best_class) { return candidate_key(score, anchor, best_class); }

void host_of_candidate_key(u64 key, float *score, int *place) {
    *score = score_of_key(key);
    place[0] = anchor_of_key(key);
    place[1] = class_of_key(key);
}

int host_overlaps(const Box *one, const Box *other, float threshold) { return overlaps(*one, *other, threshold); }

int host_size_of_image() { return (int)sizeof(Image); }
}
