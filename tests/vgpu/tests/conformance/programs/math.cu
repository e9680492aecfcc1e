// The functions of math.h, which the compiler expands into PTX.
#include <math.h>
#include "common.cuh"

MAP(doubles_elementary, Doubles, 10,
    o[0] = bits(sin(x.a)); o[1] = bits(cos(x.a)); o[2] = bits(tan(x.a)); o[3] = bits(exp(x.a)); o[4] = bits(log(fabs(x.a)));
    o[5] = bits(sqrt(fabs(x.a))); o[6] = bits(cbrt(x.a)); o[7] = bits(x.a / x.b); o[8] = bits(1.0 / x.b); o[9] = bits(rsqrt(fabs(x.a)));)
MAP(doubles_powers, Doubles, 8,
    o[0] = bits(pow(fabs(x.a), x.b)); o[1] = bits(exp2(x.a)); o[2] = bits(exp10(x.a)); o[3] = bits(expm1(x.a));
    o[4] = bits(log2(fabs(x.a))); o[5] = bits(log10(fabs(x.a))); o[6] = bits(log1p(fabs(x.a))); o[7] = bits(hypot(x.a, x.b));)
MAP(doubles_inverse, Doubles, 8,
    o[0] = bits(atan(x.a)); o[1] = bits(atan2(x.a, x.b)); o[2] = bits(asin(x.c)); o[3] = bits(acos(x.c));
    o[4] = bits(sinh(x.a)); o[5] = bits(cosh(x.a)); o[6] = bits(tanh(x.a)); o[7] = bits(asinh(x.a));)
MAP(doubles_special, Doubles, 6,
    o[0] = bits(erf(x.a)); o[1] = bits(erfc(x.a)); o[2] = bits(tgamma(fabs(x.a) + 0.5)); o[3] = bits(lgamma(fabs(x.a) + 0.5));
    o[4] = bits(fmod(x.a, x.b)); o[5] = bits(normcdf(x.a));)
MAP(doubles_large, Doubles, 2, o[0] = bits(sin(x.a)); o[1] = bits(cos(x.a));)
MAP(doubles_parts, Doubles, 6,
    int e; double whole; o[0] = bits(frexp(x.a, &e)); o[1] = (u32)e; o[2] = bits(ldexp(x.a, 3)); o[3] = bits(modf(x.a, &whole));
    o[4] = bits(whole); o[5] = (u32)ilogb(x.a);)
MAP(singles_elementary, Floats, 10,
    o[0] = bits(sinf(x.a)); o[1] = bits(cosf(x.a)); o[2] = bits(tanf(x.a)); o[3] = bits(expf(x.a)); o[4] = bits(logf(fabsf(x.a)));
    o[5] = bits(sqrtf(fabsf(x.a))); o[6] = bits(cbrtf(x.a)); o[7] = bits(x.a / x.b); o[8] = bits(powf(fabsf(x.a), x.b)); o[9] = bits(tanhf(x.a));)
MAP(singles_more, Floats, 10,
    o[0] = bits(erff(x.a)); o[1] = bits(erfcf(x.a)); o[2] = bits(atanf(x.a)); o[3] = bits(atan2f(x.a, x.b)); o[4] = bits(asinf(x.c));
    o[5] = bits(exp2f(x.a)); o[6] = bits(log2f(fabsf(x.a))); o[7] = bits(log1pf(fabsf(x.a))); o[8] = bits(expm1f(x.a)); o[9] = bits(rsqrtf(fabsf(x.a)));)
MAP(singles_fast, Floats, 6,
    o[0] = bits(__sinf(x.c)); o[1] = bits(__cosf(x.c)); o[2] = bits(__expf(x.a)); o[3] = bits(__logf(fabsf(x.a)));
    o[4] = bits(__fdividef(x.a, x.b)); o[5] = bits(__powf(fabsf(x.a), x.c));)
MAP(singles_large, Floats, 2, o[0] = bits(sinf(x.a)); o[1] = bits(cosf(x.a));)
