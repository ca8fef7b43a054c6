// What the instructions of csrc/hopper.cuh do: copies and products at once, in the thread that begins them.
#pragma once

#include "hopper.cuh"
#include "tensor_core.hpp"

struct Barrier {
    u32 arrivals, pending, phase;
    int bytes;
};

inline void initialise(Barrier *barrier, u32 arrivals) { *barrier = {arrivals, arrivals, 0, 0}; }

inline void publish_barriers() {}

inline void end_phase_if_complete(Barrier *barrier) {
    if (barrier->pending || barrier->bytes) return;
    barrier->pending = barrier->arrivals;
    ++barrier->phase;
}

inline void arrive_and_expect(Barrier *barrier, u32 nbytes) {
    if (!barrier->pending) emulated::fail("more arrivals at a barrier than it counts");
    barrier->bytes += (int)nbytes;
    --barrier->pending;
    emulated::has_progressed = true;
    end_phase_if_complete(barrier);
}

inline void arrive(Barrier *barrier) { arrive_and_expect(barrier, 0); }

inline void wait(Barrier *barrier, u32 parity) {
    while (barrier->phase % 2 == parity) emulated::yield();
}

// The 16-byte chunks of a row of 128 bytes, permuted by the row's last three bits.
inline Half *swizzled(const Half *place) {
    const size_t address = (size_t)place;
    return (Half *)(address ^ (address >> 7 & 7) << 4);
}

// `words`: address, columns, rows, bytes from row to row, and the box's columns and rows; see `fake_driver.py`.
inline void copy_box(Half *target, const TensorMap &map, int row, int column, Barrier *barrier) {
    const int columns = (int)map.words[4], rows = (int)map.words[5];
    if (columns != OPERAND_DEPTH || (size_t)target % 1024) emulated::fail("a box that is no swizzled tile");
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) {
            const bool is_inside = (u64)(row + i) < map.words[2] && (u64)(column + j) < map.words[1];
            const Half *source = (const Half *)(map.words[0] + (u64)(row + i) * map.words[3]) + column + j;
            *swizzled(target + i * columns + j) = is_inside ? *source : Half{0};
        }
    barrier->bytes -= rows * columns * (int)sizeof(Half);
    end_phase_if_complete(barrier);
}

inline Half *first_tile(Half *memory) { return (Half *)(((size_t)memory + 1023) / 1024 * 1024); }

inline void begin_products() {}

inline void commit_products() {}

template <int PENDING>
void wait_for_products() {}

inline void multiply_64x256x16(float *sums, const Half *left, const Half *right) {
    const int lane = emulated::current->rank % 32, warp = emulated::current->rank / 32 % 4;
    for (int i = 0; i < 128; ++i) {
        const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        for (int k = 0; k < MULTIPLY_DEPTH; ++k)
            sums[i] += to_float(*swizzled(left + row * OPERAND_DEPTH + k)) *
                       to_float(*swizzled(right + column * OPERAND_DEPTH + k));
    }
}
