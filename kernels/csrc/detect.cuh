// Candidates of a YOLO head, their order and their overlap: the arithmetic of the kernels of `detect`.
#pragma once

#include "common.cuh"

const int MAX_CLASSES = 4096;      // 12 bits of a key
const int MAX_ANCHORS = 1 << 20;   // 20 bits of a key

struct Box {
    float left, top, right, bottom;
};

KERNEL_FUNCTION Box box_of(float centre_x, float centre_y, float width, float height) {
    Box box;
    box.left = centre_x - width / 2;
    box.top = centre_y - height / 2;
    box.right = centre_x + width / 2;
    box.bottom = centre_y + height / 2;
    return box;
}

KERNEL_FUNCTION float area_of(Box box) {
    return fmaxf(box.right - box.left, 0.0f) * fmaxf(box.bottom - box.top, 0.0f);
}

// Whether intersection over union is more than `threshold`; two empty boxes do not overlap.
KERNEL_FUNCTION bool overlaps(Box one, Box other, float threshold) {
    Box both;
    both.left = fmaxf(one.left, other.left);
    both.top = fmaxf(one.top, other.top);
    both.right = fminf(one.right, other.right);
    both.bottom = fminf(one.bottom, other.bottom);
    const float intersection = area_of(both);
    return intersection > threshold * (area_of(one) + area_of(other) - intersection);
}

// The better the candidate the larger; of equal scores the lower anchor is the larger. Never 0: scores are not NaN.
KERNEL_FUNCTION u64 candidate_key(float score, int anchor, int best_class) {
    return ((u64)ordered(score) << 32) | ((u32)(MAX_ANCHORS - 1 - anchor) << 12) | (u32)best_class;
}

KERNEL_FUNCTION int anchor_of_key(u64 key) { return MAX_ANCHORS - 1 - (int)((u32)key >> 12); }

KERNEL_FUNCTION int class_of_key(u64 key) { return (int)(key & 4095u); }

// The inverse of `ordered`.
KERNEL_FUNCTION float score_of_key(u64 key) {
    const u32 order = (u32)(key >> 32);
    return float_of(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}
