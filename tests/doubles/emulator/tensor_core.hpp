// What the instructions of csrc/tensor_core.cuh do, lane by lane, in the words of PTX's own description.
#pragma once

#include "common.cuh"
#include "emulator.hpp"

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

#define DYNAMIC_SHARED(TYPE, NAME)                                                                                     \
    static uint4 dynamic_shared_memory[(227 << 10) / 16];                                                              \
    TYPE *NAME = (TYPE *)dynamic_shared_memory

template <typename T>
T __ldcs(const T *address) {
    return *address;
}

template <typename T>
void __stcs(T *address, T value) {
    *address = value;
}

struct Fragments {
    u32 left[4], right[2];
    const Half *row;
};

inline Fragments lanes[32][32]; // by warp and lane

inline Fragments *of_this_warp() { return lanes[emulated::current->rank / 32]; }

inline void meet() { emulated::barrier(emulated::warps[emulated::current->rank / 32]); }

inline float half_of(u32 pair, int index) { return to_float(Half{(u16)(pair >> (16 * index))}); }

inline void multiply_16x8x16(float *sums, const u32 *left, const u32 *right) {
    const int lane = emulated::current->rank % 32;
    Fragments *warp = of_this_warp();
    for (int i = 0; i < 4; ++i) warp[lane].left[i] = left[i];
    for (int i = 0; i < 2; ++i) warp[lane].right[i] = right[i];
    meet();
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) {
            const u32 a = warp[row % 8 * 4 + k % 8 / 2].left[row / 8 + k / 8 * 2];
            const u32 b = warp[column * 4 + k % 8 / 2].right[k / 8];
            sums[i] += half_of(a, k % 2) * half_of(b, k % 2);
        }
    }
    meet();
}

inline void load_matrices(u32 *values, const Half *row) {
    const int lane = emulated::current->rank % 32;
    Fragments *warp = of_this_warp();
    warp[lane].row = row;
    meet();
    for (int i = 0; i < 4; ++i) memcpy(&values[i], warp[i * 8 + lane / 4].row + lane % 4 * 2, 4);
    meet();
}

inline void copy_16_bytes(Half *target, const Half *source) { memcpy(target, source, 16); }

inline void commit_copies() {}

template <int PENDING>
void wait_for_copies() {}
