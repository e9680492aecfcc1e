// f32 and f64 arithmetic: rounding, flushing, saturation, comparison.
#include "common.cuh"

#define FOUR(at, f, suffix_args) \
    o[at] = bits(f##_rn suffix_args); o[at + 1] = bits(f##_rz suffix_args); \
    o[at + 2] = bits(f##_rd suffix_args); o[at + 3] = bits(f##_ru suffix_args);

MAP(rounded_singles, Floats, 28,
    FOUR(0, __fadd, (x.a, x.b)) FOUR(4, __fsub, (x.a, x.b)) FOUR(8, __fmul, (x.a, x.b))
    FOUR(12, __fmaf, (x.a, x.b, x.c)) FOUR(16, __fdiv, (x.a, x.b)) FOUR(20, __frcp, (x.a)) FOUR(24, __fsqrt, (x.a)))

MAP(rounded_doubles, Doubles, 28,
    FOUR(0, __dadd, (x.a, x.b)) FOUR(4, __dsub, (x.a, x.b)) FOUR(8, __dmul, (x.a, x.b))
    FOUR(12, __fma, (x.a, x.b, x.c)) FOUR(16, __ddiv, (x.a, x.b)) FOUR(20, __drcp, (x.a)) FOUR(24, __dsqrt, (x.a)))

#define TWO(at, op) asm(op " %0, %1, %2;" : "=f"(r) : "f"(x.a), "f"(x.b)); o[at] = bits(r);
#define THREE(at, op) asm(op " %0, %1, %2, %3;" : "=f"(r) : "f"(x.a), "f"(x.b), "f"(x.c)); o[at] = bits(r);
MAP(flushed_and_saturated, Floats, 12,
    float r;
    TWO(0, "add.ftz.f32") TWO(1, "sub.ftz.f32") TWO(2, "mul.ftz.f32") THREE(3, "fma.rn.ftz.f32")
    TWO(4, "add.sat.f32") TWO(5, "mul.sat.f32") THREE(6, "fma.rn.sat.f32") THREE(7, "fma.rz.ftz.sat.f32")
    TWO(8, "min.ftz.f32") TWO(9, "max.ftz.f32") TWO(10, "div.rn.ftz.f32")
    asm("abs.ftz.f32 %0, %1;" : "=f"(r) : "f"(x.a)); o[11] = bits(r);)

MAP(extrema, Floats, 8,
    float r; double d;
    TWO(0, "min.f32") TWO(1, "max.f32") TWO(2, "copysign.f32")
    asm("neg.f32 %0, %1;" : "=f"(r) : "f"(x.a)); o[3] = bits(r);
    asm("min.f64 %0, %1, %2;" : "=d"(d) : "d"((double)x.a), "d"((double)x.b)); o[4] = bits(d);
    asm("max.f64 %0, %1, %2;" : "=d"(d) : "d"((double)x.a), "d"((double)x.b)); o[5] = bits(d);
    o[6] = bits(fminf(x.a, x.b)); o[7] = bits(fmax((double)x.a, (double)x.b));)

#if __CUDA_ARCH__ >= 860
MAP(extrema_xorsign, Floats, 2,
    float r; TWO(0, "min.xorsign.abs.f32") TWO(1, "max.NaN.xorsign.abs.f32"))
#endif
#if __CUDA_ARCH__ >= 800
MAP(extrema_nan, Floats, 2, float r; TWO(0, "min.NaN.f32") TWO(1, "max.NaN.ftz.f32"))
#endif

#define COMPARE(at, op) \
    asm("{ .reg .pred p; setp." op ".f32 p, %1, %2; selp.u32 %0, 1, 0, p; }" : "=r"(r) : "f"(x.a), "f"(x.b)); \
    o[0] |= (u64)r << at; \
    asm("{ .reg .pred p; setp." op ".f64 p, %1, %2; selp.u32 %0, 1, 0, p; }" : "=r"(r) : "d"((double)x.a), "d"((double)x.b)); \
    o[1] |= (u64)r << at;
MAP(comparisons, Floats, 4,
    u32 r; o[0] = 0; o[1] = 0;
    COMPARE(0, "eq") COMPARE(1, "ne") COMPARE(2, "lt") COMPARE(3, "le") COMPARE(4, "gt") COMPARE(5, "ge")
    COMPARE(6, "equ") COMPARE(7, "neu") COMPARE(8, "ltu") COMPARE(9, "leu") COMPARE(10, "gtu") COMPARE(11, "geu")
    COMPARE(12, "num") COMPARE(13, "nan")
    asm("{ .reg .pred p; setp.gt.ftz.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }" : "=r"(r) : "f"(x.a), "f"(x.b));
    o[2] = r; o[3] = (x.a < x.b) + 2 * (x.a != x.b) + 4 * !(x.a >= x.b);)

#define TEST(at, what) \
    asm("{ .reg .pred p; testp." what ".f32 p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(r) : "f"(x.a)); o[0] |= (u64)r << at; \
    asm("{ .reg .pred p; testp." what ".f64 p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(r) : "d"((double)x.a)); o[1] |= (u64)r << at;
MAP(properties, Floats, 2,
    u32 r; o[0] = 0; o[1] = 0;
    TEST(0, "finite") TEST(1, "infinite") TEST(2, "number") TEST(3, "notanumber") TEST(4, "normal") TEST(5, "subnormal"))

#define APPROX(at, op) asm(op " %0, %1;" : "=f"(r) : "f"(x.a)); o[at] = bits(r);
MAP(approximations, Floats, 12,
    float r;
    APPROX(0, "rcp.approx.f32") APPROX(1, "sqrt.approx.f32") APPROX(2, "rsqrt.approx.f32")
    APPROX(3, "ex2.approx.f32") APPROX(4, "lg2.approx.f32") APPROX(5, "sin.approx.f32") APPROX(6, "cos.approx.f32")
    APPROX(7, "tanh.approx.f32") TWO(8, "div.approx.f32") TWO(9, "div.full.f32")
    APPROX(10, "rcp.approx.ftz.f32") APPROX(11, "ex2.approx.ftz.f32"))

MAP(double_seeds, Doubles, 2,
    double r;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x.a)); o[0] = bits(r);
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(fabs(x.a))); o[1] = bits(r);)
