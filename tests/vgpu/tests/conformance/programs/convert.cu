// Conversions between all types, in every direction.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "common.cuh"

#define TO(at, f, v) o[at] = (u64)(f##_rn(v)); o[at + 1] = (u64)(f##_rz(v)); o[at + 2] = (u64)(f##_rd(v)); o[at + 3] = (u64)(f##_ru(v));
MAP(singles_to_integers, Floats, 16,
    TO(0, (u32)__float2int, x.a) TO(4, __float2uint, x.a) TO(8, __float2ll, x.a) TO(12, __float2ull, x.a))
MAP(doubles_to_integers, Doubles, 16,
    TO(0, (u32)__double2int, x.a) TO(4, __double2uint, x.a) TO(8, __double2ll, x.a) TO(12, __double2ull, x.a))

#define FROM(at, f, v) o[at] = bits(f##_rn(v)); o[at + 1] = bits(f##_rz(v)); o[at + 2] = bits(f##_rd(v)); o[at + 3] = bits(f##_ru(v));
MAP(integers_to_singles, Ints, 16,
    FROM(0, __int2float, (int)x.a) FROM(4, __uint2float, (u32)x.a) FROM(8, __ll2float, (s64)x.a) FROM(12, __ull2float, x.a))
MAP(integers_to_doubles, Ints, 10,
    FROM(0, __ll2double, (s64)x.a) FROM(4, __ull2double, x.a) o[8] = bits(__int2double_rn((int)x.a));
    o[9] = bits(__uint2double_rn((u32)x.a));)
MAP(doubles_to_singles, Doubles, 4, FROM(0, __double2float, x.a))

#define NARROW(at, op) asm(op " %0, %1;" : "=r"(r) : "f"(x.a)); o[at] = r;
MAP(small_integers, Floats, 8,
    u32 r;
    asm("{ .reg .u8 t; cvt.rzi.u8.f32 t, %1; cvt.u32.u8 %0, t; }" : "=r"(r) : "f"(x.a)); o[0] = r;
    asm("{ .reg .s8 t; cvt.rni.s8.f32 t, %1; cvt.s32.s8 %0, t; }" : "=r"(r) : "f"(x.a)); o[1] = r;
    asm("{ .reg .s16 t; cvt.rmi.s16.f32 t, %1; cvt.s32.s16 %0, t; }" : "=r"(r) : "f"(x.a)); o[2] = r;
    asm("{ .reg .u16 t; cvt.rpi.u16.f32 t, %1; cvt.u32.u16 %0, t; }" : "=r"(r) : "f"(x.a)); o[3] = r;
    const u32 w = __float_as_uint(x.b);
    asm("{ .reg .s8 t; cvt.sat.s8.s32 t, %1; cvt.s32.s8 %0, t; }" : "=r"(r) : "r"(w)); o[4] = r;
    asm("{ .reg .u16 t; cvt.sat.u16.s32 t, %1; cvt.u32.u16 %0, t; }" : "=r"(r) : "r"(w)); o[5] = r;
    asm("{ .reg .s16 t; cvt.s16.s32 t, %1; cvt.s32.s16 %0, t; }" : "=r"(r) : "r"(w)); o[6] = r;
    asm("{ .reg .u64 t; cvt.s64.s32 t, %1; shr.u64 t, t, 20; cvt.u32.u64 %0, t; }" : "=r"(r) : "r"(w)); o[7] = r;)

MAP(integral_singles, Floats, 8,
    float r;
    o[0] = bits(rintf(x.a)); o[1] = bits(truncf(x.a)); o[2] = bits(floorf(x.a)); o[3] = bits(ceilf(x.a));
    o[4] = bits(roundf(x.a)); o[5] = bits(__saturatef(x.a));
    asm("cvt.ftz.f32.f32 %0, %1;" : "=f"(r) : "f"(x.a)); o[6] = bits(r);
    asm("cvt.rmi.ftz.sat.f32.f32 %0, %1;" : "=f"(r) : "f"(x.a)); o[7] = bits(r);)
MAP(integral_doubles, Doubles, 5,
    o[0] = bits(rint(x.a)); o[1] = bits(trunc(x.a)); o[2] = bits(floor(x.a)); o[3] = bits(ceil(x.a)); o[4] = bits(round(x.a));)

#define HALF(v) (u64)__half_as_ushort(v)
MAP(to_half, Doubles, 9,
    const float f = (float)x.a;
    o[0] = HALF(__float2half_rn(f)); o[1] = HALF(__float2half_rz(f)); o[2] = HALF(__float2half_rd(f)); o[3] = HALF(__float2half_ru(f));
    o[4] = HALF(__double2half(x.a)); o[5] = HALF(__int2half_rn((int)f)); o[6] = HALF(__ll2half_rd((s64)f));
    const __half2 p = __floats2half2_rn(f, (float)x.b); o[7] = *(const u32*)&p;
    o[8] = HALF(__uint2half_rz((u32)fabsf(f)));)
MAP(from_half, Ints, 6,
    const __half p = __ushort_as_half((u16)x.a);
    o[0] = bits(__half2float(p)); o[1] = (u32)__half2int_rn(p); o[2] = (u64)__half2ll_rd(p); o[3] = __half2uint_ru(p);
    o[4] = HALF(hrint(p)); o[5] = HALF(hfloor(p));)
#define BFLOAT(v) (u64)__bfloat16_as_ushort(v)
MAP(to_bfloat, Doubles, 5,
    const float f = (float)x.a;
    o[0] = BFLOAT(__float2bfloat16_rn(f)); o[1] = BFLOAT(__float2bfloat16_rz(f));
    const __nv_bfloat162 p = __floats2bfloat162_rn(f, (float)x.b); o[2] = *(const u32*)&p;
    o[3] = bits(__bfloat162float(__float2bfloat16(f))); o[4] = BFLOAT(__double2bfloat16(x.a));)

#if __CUDA_ARCH__ >= 800
MAP(packed_conversions, Floats, 6,
    u32 r; u16 s;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x.a), "f"(x.b)); o[0] = r;
    asm("cvt.rz.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x.a), "f"(x.b)); o[1] = r;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x.a), "f"(x.b)); o[2] = r;
    asm("cvt.rn.relu.bf16.f32 %0, %1;" : "=h"(s) : "f"(x.a)); o[3] = s;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x.a)); o[4] = r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x.a), "f"(x.b)); o[5] = r;)
#endif
#if __CUDA_ARCH__ >= 900
MAP(eight_bit_floats, Floats, 4,
    u16 s; u32 r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(s) : "f"(x.a), "f"(x.b)); o[0] = s;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(s)); o[1] = r;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(s) : "f"(x.a), "f"(x.b)); o[2] = s;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(r) : "h"(s)); o[3] = r;)
#endif
