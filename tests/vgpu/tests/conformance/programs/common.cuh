// What every program of the suite shares.
//
// Most kernels are maps: thread i reads one struct of operands and writes N words of 64 bits, the results of N
// operations as bits, so that a test can compare them without knowing their types.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

struct Ints { u64 a, b, c; };
struct Floats { float a, b, c; };
struct Doubles { double a, b, c; };

__device__ inline u64 bits(float x) { return __float_as_uint(x); }
__device__ inline u64 bits(double x) { return (u64)__double_as_longlong(x); }

#define MAP(name, In, N, ...)                                              \
    extern "C" __global__ void name(const In* in, u64* out, int n) {       \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;               \
        if (i < n) {                                                       \
            const In x = in[i];                                            \
            u64* o = out + (u64)i * N;                                     \
            __VA_ARGS__                                                    \
        }                                                                  \
    }
