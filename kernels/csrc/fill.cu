// Kernel `fill`: the same 1, 2 or 4 bytes over and over, from any address to any other.
//
// The pattern comes as the word that lies at multiples of 4: shorter ones are repeated in it, and longer ones begin at
// such an address, so every byte follows from its address alone. Between the first and the last multiple of 16 each
// store writes 16 bytes; the few bytes on either side are written one by one.

#include "common.cuh"

const int STORE_BYTES = 16;

__device__ __forceinline__ void fill_byte(u8 *address, u32 word) { *address = (u8)(word >> ((u64)address % 4 * 8)); }

extern "C" __global__ void __launch_bounds__(256) fill_bytes(u8 *start, u64 nbytes, u32 word) {
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
    const u64 before = -(u64)start % STORE_BYTES, head = before < nbytes ? before : nbytes;
    const u64 stores = (nbytes - head) / STORE_BYTES, tail = head + stores * STORE_BYTES;
    Pack<u32> pack;
    for (u32 &each : pack.values) each = word;
    for (u64 store = thread; store < stores; store += threads) {
        *(Pack<u32> *)(start + head + store * STORE_BYTES) = pack;
    }
    if (thread < head) fill_byte(start + thread, word);
    if (thread < nbytes - tail) fill_byte(start + tail + thread, word);
}
