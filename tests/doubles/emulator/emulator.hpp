// Runs a kernel's source on the host: blocks one after another, the threads of a block as fibers that take turns.
//
// It is made for checking results. A barrier that some live thread of the block, or lane of the warp, does not reach
// ends the program, and so does a shuffle among lanes of which some have left: on a GPU both may pass unnoticed.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#define EMULATED 1
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static

struct Dimensions {
    int x, y, z;
};

inline Dimensions threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

const size_t STACK_BYTES = 64 << 10;

struct Group { // of threads that wait for each other
    int live = 0, arrived = 0;
    unsigned long long generation = 0;
};

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    Dimensions index;
    int rank;
    bool is_done;
};

inline std::vector<Fiber> fibers;
inline std::vector<Group> warps;
inline std::vector<unsigned long long> exchange;
inline Group block;
inline Fiber *current = nullptr;
inline ucontext_t scheduler;
inline bool has_progressed;
inline const std::function<void()> *body;

inline void fail(const char *why) {
    fprintf(stderr, "emulated kernel: %s (thread %d of block %d, %d, %d)\n", why, current ? current->rank : -1,
            blockIdx.x, blockIdx.y, blockIdx.z);
    abort();
}

inline void yield() { swapcontext(&current->context, &scheduler); }

inline void release_if_complete(Group &group) {
    if (group.arrived && group.arrived >= group.live) {
        group.arrived = 0;
        ++group.generation;
        has_progressed = true;
    }
}

inline void barrier(Group &group) {
    if (!current) fail("a barrier in a kernel that was run without fibers");
    const unsigned long long mine = group.generation;
    ++group.arrived;
    release_if_complete(group);
    while (group.generation == mine) yield();
}

inline void run_fiber() {
    (*body)();
    current->is_done = true;
    has_progressed = true;
    Group &warp = warps[current->rank / 32];
    --warp.live;
    --block.live;
    release_if_complete(warp);
    release_if_complete(block);
    swapcontext(&current->context, &scheduler);
}

inline void start_block(int threads) {
    block = Group();
    block.live = threads;
    warps.assign((threads + 31) / 32, Group());
    exchange.assign(warps.size() * 32, 0);
    fibers.resize(threads);
    for (int rank = 0; rank < threads; ++rank) {
        Fiber &fiber = fibers[rank];
        fiber.stack.resize(STACK_BYTES);
        fiber.rank = rank;
        fiber.is_done = false;
        fiber.index = {rank % blockDim.x, rank / blockDim.x % blockDim.y, rank / (blockDim.x * blockDim.y)};
        ++warps[rank / 32].live;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = STACK_BYTES;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, run_fiber, 0);
    }
}

inline void run_block_of_fibers(int threads) {
    start_block(threads);
    for (int left = threads; left > 0;) {
        left = 0;
        has_progressed = false;
        for (Fiber &fiber : fibers) {
            if (fiber.is_done) continue;
            current = &fiber;
            threadIdx = fiber.index;
            swapcontext(&scheduler, &fiber.context);
            left += !fiber.is_done;
        }
        if (left && !has_progressed) fail("threads wait for each other at different barriers");
    }
    current = nullptr;
}

template <typename T>
T shuffle_xor(unsigned mask, T value, int distance) {
    static_assert(sizeof(T) <= 8, "what a shuffle moves");
    Group &warp = warps[current->rank / 32];
    if (mask != 0xffffffffu || warp.live != 32) fail("a shuffle in which not all 32 lanes take part");
    __builtin_memcpy(&exchange[current->rank], &value, sizeof(T));
    barrier(warp);
    T other;
    __builtin_memcpy(&other, &exchange[current->rank ^ distance], sizeof(T));
    barrier(warp);
    return other;
}

template <typename... Parameters, size_t... Places>
std::function<void()> bound(void (*kernel)(Parameters...), void **arguments, std::index_sequence<Places...>) {
    return [=]() { kernel(*(std::remove_reference_t<Parameters> *)arguments[Places]...); };
}

template <typename... Parameters>
void launch(void (*kernel)(Parameters...), const int *grid, const int *block_size, void **arguments, bool needs_fibers) {
    const std::function<void()> call = bound(kernel, arguments, std::index_sequence_for<Parameters...>());
    body = &call;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block_size[0], block_size[1], block_size[2]};
    const int threads = blockDim.x * blockDim.y * blockDim.z;
    for (int i = 0; i < gridDim.x * gridDim.y * gridDim.z; ++i) {
        blockIdx = {i % gridDim.x, i / gridDim.x % gridDim.y, i / (gridDim.x * gridDim.y)};
        if (needs_fibers) {
            run_block_of_fibers(threads);
            continue;
        }
        for (int rank = 0; rank < threads; ++rank) {
            threadIdx = {rank % blockDim.x, rank / blockDim.x % blockDim.y, rank / (blockDim.x * blockDim.y)};
            call();
        }
    }
}

} // namespace emulated

inline void __syncthreads() { emulated::barrier(emulated::block); }

inline int __syncthreads_or(int is_true) {
    static int found;
    found = 0; // every thread, before any of them passes the barrier
    emulated::barrier(emulated::block);
    found |= is_true;
    emulated::barrier(emulated::block);
    const int result = found != 0;
    emulated::barrier(emulated::block);
    return result;
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
    return emulated::shuffle_xor(mask, value, distance);
}

template <typename T>
T atomicAdd(T *address, T value) {
    const T before = *address;
    *address += value;
    return before;
}

template <typename T>
T __ldg(const T *address) {
    return *address;
}

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}

inline int max(int one, int other) { return one > other ? one : other; }
inline int min(int one, int other) { return one < other ? one : other; }
