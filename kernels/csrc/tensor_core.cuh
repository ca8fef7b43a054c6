// The instructions that a matrix product is made of, in PTX; on the host what they do, for the emulated device.
//
// Fragments are PTX's (ISA, "Warp Level Matrix Multiply-Accumulate Instructions"): with group = lane / 4 and
// pair = lane % 4 * 2, a lane holds rows group and group + 8 of the left factor at columns pair, pair + 1, pair + 8 and
// pair + 9, column group of the right factor at the same depths, and of the sums columns pair and pair + 1.
#pragma once

#include "common.cuh"

#if defined(__CUDACC__)
#define DYNAMIC_SHARED(TYPE, NAME)                                                                                     \
    extern __shared__ uint4 dynamic_shared_memory[];                                                                   \
    TYPE *NAME = (TYPE *)dynamic_shared_memory
#endif

#if defined(__CUDACC__)

// sums += left (16 x 16) * right (16 x 8).
__device__ __forceinline__ void multiply_16x8x16(float *sums, const u32 *left, const u32 *right) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
#else
#pragma unroll
    for (int half = 0; half < 2; ++half)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(left[2 * half]), "r"(left[2 * half + 1]), "r"(right[half]));
#endif
}

__device__ __forceinline__ u32 shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// Four 8 x 8 matrices of halves, a row per lane's address: lanes 0 to 7 give those of the first, and so on.
__device__ __forceinline__ void load_matrices(u32 *values, const Half *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// From global to shared memory without registers, in the background where the device can.
__device__ __forceinline__ void copy_16_bytes(Half *target, const Half *source) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(target)), "l"(source) : "memory");
#else
    *(uint4 *)target = *(const uint4 *)source;
#endif
}

__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Until at most PENDING of the groups that this thread has committed are under way.
template <int PENDING>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

#endif
