// What device code shares: half-precision conversions and warp reductions, without CUDA's own headers.
//
// Everything here also compiles for the host, where the tests hold it against NumPy. NVRTC alone is enough to build
// it: no header of the toolkit is needed on the machine that serves.
#pragma once

#if defined(__CUDACC__)
#define KERNEL_FUNCTION __host__ __device__ __forceinline__
#else
#include <cmath>
#include <cstring>
#define KERNEL_FUNCTION inline
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A half as its bits, so that the type needs no header.
struct Half {
    u16 bits;
};

KERNEL_FUNCTION u32 bits_of(float value) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(value);
#else
    u32 bits;
    memcpy(&bits, &value, 4);
    return bits;
#endif
}

KERNEL_FUNCTION float float_of(u32 bits) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    float value;
    memcpy(&value, &bits, 4);
    return value;
#endif
}

// Round to nearest, ties to even; NaN stays NaN, what is too large becomes infinite (IEEE 754 binary16).
KERNEL_FUNCTION Half to_half(float value) {
    Half half;
#if defined(__CUDA_ARCH__)
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
#else
    const u32 bits = bits_of(value), magnitude = bits & 0x7fffffffu;
    const u16 sign = (u16)((bits >> 16) & 0x8000u);
    if (magnitude > 0x7f800000u) {
        half.bits = (u16)(sign | 0x7e00u);
    } else if (magnitude >= 0x47800000u) {
        half.bits = (u16)(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) {
        // Adding 0.5 aligns the value's last bit with a subnormal half's: the FPU does the rounding.
        half.bits = (u16)(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u));
    } else {
        const u32 odd = (magnitude >> 13) & 1u;
        half.bits = (u16)(sign | ((magnitude - 0x38000000u + 0x0fffu + odd) >> 13));
    }
#endif
    return half;
}

KERNEL_FUNCTION float to_float(Half half) {
#if defined(__CUDA_ARCH__)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half.bits));
    return value;
#else
    const u32 sign = (u32)(half.bits & 0x8000u) << 16, magnitude = half.bits & 0x7fffu;
    if (magnitude >= 0x7c00u) {
        return float_of(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    }
    if (magnitude < 0x400u) {
        const float value = (float)magnitude * (1.0f / 16777216.0f);
        return sign ? -value : value;
    }
    return float_of(sign | ((magnitude << 13) + 0x38000000u));
#endif
}

KERNEL_FUNCTION float to_float(float value) { return value; }

// Both as halves, the first one in the lower bits.
KERNEL_FUNCTION u32 pack_halves(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u32 halves;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
    return halves;
#else
    return (u32)to_half(first).bits | (u32)to_half(second).bits << 16;
#endif
}

KERNEL_FUNCTION void store(float *address, float value) { *address = value; }
KERNEL_FUNCTION void store(Half *address, float value) { *address = to_half(value); }

// What one access moves at most; at a multiple of 16 bytes.
template <typename T>
struct alignas(16) Pack {
    T values[16 / sizeof(T)];
};

KERNEL_FUNCTION int clamp(int value, int low, int high) { return value < low ? low : (value > high ? high : value); }

KERNEL_FUNCTION bool is_nan(float value) { return value != value; }

KERNEL_FUNCTION bool is_finite(float value) { return (bits_of(value) & 0x7f800000u) != 0x7f800000u; }

#define INFINITY_FLOAT float_of(0x7f800000u)
#define NAN_FLOAT float_of(0x7fc00000u)

// Floats as integers of the same order: the larger the value, the larger the integer. Not for NaN; 0 is below them all.
KERNEL_FUNCTION u32 ordered(float value) {
    const u32 bits = bits_of(value == 0.0f ? 0.0f : value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

#if defined(__CUDACC__) || defined(EMULATED)
// Sums and maxima over the 32 lanes of a warp; all of them must take part, and all get the result.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

__device__ __forceinline__ u64 warp_max(u64 value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1) {
        const u64 other = __shfl_xor_sync(0xffffffffu, value, distance);
        value = other > value ? other : value;
    }
    return value;
}
#endif
