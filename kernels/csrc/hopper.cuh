// The instructions that make a matrix product fast on Hopper (sm_90a), in PTX; the emulated device has its own of the
// same names.
//
// Operand tiles are OPERAND_DEPTH = 64 halves deep, so that a row is 128 bytes; the copy engine writes them with the
// 16-byte chunks of a row permuted by the row's last three bits (the 128-byte swizzle), and the tensor cores read them
// so. Layouts and descriptors are PTX's (ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "Tensor Map").
#pragma once

#include "tensor_core.cuh"

const int OPERAND_DEPTH = 64;
const int MULTIPLY_DEPTH = 16; // of one `multiply_64x256x16`

// What the copy engine knows about a matrix in global memory; made by the driver (`cuTensorMapEncodeTiled`).
struct alignas(64) TensorMap {
    u64 words[16];
};

#if defined(__CUDACC__)

// A place in shared memory where some wait for the arrivals of others, and for bytes of the copy engine; its phases
// alternate, beginning with 0.
struct alignas(8) Barrier {
    u64 state;
};

__device__ __forceinline__ void initialise(Barrier *barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers known to the copy engine.
__device__ __forceinline__ void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(Barrier *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void arrive_and_expect(Barrier *barrier, u32 nbytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(nbytes)
                 : "memory");
}

// Until the phase of this parity is over; the one before the first counts as over.
__device__ __forceinline__ void wait(Barrier *barrier, u32 parity) {
    asm volatile("{.reg .pred is_over; again: mbarrier.try_wait.parity.shared::cta.b64 is_over, [%0], %1; "
                 "@!is_over bra again;}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

// Begins to copy a box of the matrix, from this row and column on; `barrier` gets the bytes. One thread calls it.
__device__ __forceinline__ void copy_box(Half *target, const TensorMap &map, int row, int column, Barrier *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(target)),
                 "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
                 : "memory");
}

// Where swizzled tiles may begin: the next multiple of 1024 bytes.
__device__ __forceinline__ Half *first_tile(Half *memory) {
    return memory + (0u - shared_address(memory)) % 1024 / sizeof(Half);
}

// A swizzled tile as an operand: its address, and 1024 bytes from eight rows to the next.
__device__ __forceinline__ u64 operand(const Half *tile) {
    return (u64)((shared_address(tile) & 0x3ffffu) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

#define SUMS_4(I) "+f"(sums[I]), "+f"(sums[I + 1]), "+f"(sums[I + 2]), "+f"(sums[I + 3])
#define SUMS_16(I) SUMS_4(I), SUMS_4(I + 4), SUMS_4(I + 8), SUMS_4(I + 12)
#define SUMS_64(I) SUMS_16(I), SUMS_16(I + 16), SUMS_16(I + 32), SUMS_16(I + 48)

// sums += left (64 x 16) * right (256 x 16) transposed, by the four warps of a group together, in the background:
// until `wait_for_products` no one may touch the sums. Warp w of the group has rows 16 w to 16 w + 15; sums 4 j and 4
// j + 1 of a lane are row lane / 4, columns 8 j + lane % 4 * 2 and the next, sums 4 j + 2 and 4 j + 3 the same of row
// lane / 4 + 8.
__device__ __forceinline__ void multiply_64x256x16(float *sums, const Half *left, const Half *right) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, 1, 1, 1, 0, 0;"
        : SUMS_64(0), SUMS_64(64)
        : "l"(operand(left)), "l"(operand(right)));
}

// Before the first product that uses registers which something else has written.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until at most PENDING of the groups that were committed are under way.
template <int PENDING>
__device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

#endif
