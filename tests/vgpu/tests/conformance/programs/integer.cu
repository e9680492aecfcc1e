// Integer arithmetic of every width, and instructions on bits.
#include "common.cuh"

// Every operator of C on one type; `U` is what the result is widened through, so that no sign is lost or made.
#define OPERATORS(name, T, U)                                              \
    MAP(name, Ints, 16,                                                    \
        const T a = (T)x.a; const T b = (T)x.b;                            \
        const T d = (T)(b | 1); const int by = (int)(x.c % (8 * sizeof(T))); \
        o[0] = (U)(a + b); o[1] = (U)(a - b); o[2] = (U)(a * b);           \
        o[3] = (U)(a / d); o[4] = (U)(a % d);                              \
        o[5] = (U)(a < b ? a : b); o[6] = (U)(a > b ? a : b);              \
        o[7] = (U)(a & b); o[8] = (U)(a | b); o[9] = (U)(a ^ b);           \
        o[10] = (U)(T)~a; o[11] = (U)(T)(a << by); o[12] = (U)(T)(a >> by); \
        o[13] = (U)(T)-a; o[14] = a <= b; o[15] = (a == b) + 2 * (a >= b);)

OPERATORS(operators_u8, u8, u8)
OPERATORS(operators_s8, s8, u8)
OPERATORS(operators_u16, u16, u16)
OPERATORS(operators_s16, s16, u16)
OPERATORS(operators_u32, u32, u32)
OPERATORS(operators_s32, s32, u32)
OPERATORS(operators_u64, u64, u64)
OPERATORS(operators_s64, s64, u64)

MAP(high_products, Ints, 6,
    const u32 a = (u32)x.a; const u32 b = (u32)x.b;
    o[0] = __umulhi(a, b); o[1] = (u32)__mulhi((int)a, (int)b);
    o[2] = __umul64hi(x.a, x.b); o[3] = (u64)__mul64hi((s64)x.a, (s64)x.b);
    o[4] = (u64)a * b; o[5] = (u64)((s64)(int)a * (int)b);)

// What C has no operator for.
MAP(multiply_add_forms, Ints, 14,
    const u32 a = (u32)x.a; const u32 b = (u32)x.b; const u32 c = (u32)x.c;
    u32 r; u64 w;
    asm("mad.lo.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); o[0] = r;
    asm("mad.hi.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); o[1] = r;
    asm("mad.hi.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); o[2] = r;
    asm("mad.hi.sat.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); o[3] = r;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(w) : "r"(a), "r"(b), "l"(x.c)); o[4] = w;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(w) : "r"(a), "r"(b), "l"(x.c)); o[5] = w;
    asm("mul24.lo.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); o[6] = r;
    asm("mul24.hi.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); o[7] = r;
    asm("mad24.lo.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); o[8] = r;
    asm("sad.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); o[9] = r;
    asm("sad.u64 %0, %1, %2, %3;" : "=l"(w) : "l"(x.a), "l"(x.b), "l"(x.c)); o[10] = w;
    asm("add.sat.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); o[11] = r;
    asm("sub.sat.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); o[12] = r;
    asm("mad.lo.u64 %0, %1, %2, %3;" : "=l"(w) : "l"(x.a), "l"(x.b), "l"(x.c)); o[13] = w;)

MAP(counting_bits, Ints, 14,
    const u32 a = (u32)x.a; u32 r;
    o[0] = __popc(a); o[1] = __popcll(x.a); o[2] = __clz(a); o[3] = __clzll(x.a);
    o[4] = __brev(a); o[5] = __brevll(x.a); o[6] = __ffs(a); o[7] = __ffsll(x.a);
    asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(a)); o[8] = r;
    asm("bfind.s32 %0, %1;" : "=r"(r) : "r"(a)); o[9] = r;
    asm("bfind.shiftamt.u32 %0, %1;" : "=r"(r) : "r"(a)); o[10] = r;
    asm("bfind.s64 %0, %1;" : "=r"(r) : "l"(x.a)); o[11] = r;
    asm("bfind.shiftamt.u64 %0, %1;" : "=r"(r) : "l"(x.a)); o[12] = r;
    asm("not.b64 %0, %1;" : "=l"(o[13]) : "l"(x.a));)

MAP(bit_fields, Ints, 6,
    const u32 a = (u32)x.a; const u32 b = (u32)x.b;
    const u32 at = (u32)(x.c & 63); const u32 length = (u32)(x.c >> 8 & 63); u32 r; u64 w;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(at), "r"(length)); o[0] = r;
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(at), "r"(length)); o[1] = r;
    asm("bfe.u64 %0, %1, %2, %3;" : "=l"(w) : "l"(x.a), "r"(at), "r"(length)); o[2] = w;
    asm("bfe.s64 %0, %1, %2, %3;" : "=l"(w) : "l"(x.a), "r"(at), "r"(length)); o[3] = w;
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(at), "r"(length)); o[4] = r;
    asm("bfi.b64 %0, %1, %2, %3, %4;" : "=l"(w) : "l"(x.a), "l"(x.b), "r"(at), "r"(length)); o[5] = w;)

MAP(shifts, Ints, 10,
    const u32 a = (u32)x.a; const u32 b = (u32)x.b; const u32 by = (u32)(x.c % 80); u32 r; u64 w;
    o[0] = __funnelshift_l(a, b, by); o[1] = __funnelshift_lc(a, b, by);
    o[2] = __funnelshift_r(a, b, by); o[3] = __funnelshift_rc(a, b, by);
    asm("shl.b32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(by)); o[4] = r;
    asm("shr.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(by)); o[5] = r;
    asm("shr.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(by)); o[6] = r;
    asm("shl.b64 %0, %1, %2;" : "=l"(w) : "l"(x.a), "r"(by)); o[7] = w;
    asm("shr.u64 %0, %1, %2;" : "=l"(w) : "l"(x.a), "r"(by)); o[8] = w;
    asm("shr.s64 %0, %1, %2;" : "=l"(w) : "l"(x.a), "r"(by)); o[9] = w;)

#define PERMUTE(mode) asm("prmt.b32" mode " %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c))
MAP(permuted_bytes, Ints, 8,
    const u32 a = (u32)x.a; const u32 b = (u32)x.b; const u32 c = (u32)x.c & 0xffff; u32 r;
    o[0] = __byte_perm(a, b, c);
    PERMUTE(""); o[1] = r; PERMUTE(".f4e"); o[2] = r; PERMUTE(".b4e"); o[3] = r; PERMUTE(".rc8"); o[4] = r;
    PERMUTE(".ecl"); o[5] = r; PERMUTE(".ecr"); o[6] = r; PERMUTE(".rc16"); o[7] = r;)

#define LOP3(table) asm("lop3.b32 %0, %1, %2, %3, " #table ";" : "=r"(r) : "r"(a), "r"(b), "r"(c))
MAP(truth_tables, Ints, 4,
    const u32 a = (u32)x.a; const u32 b = (u32)x.b; const u32 c = (u32)x.c; u32 r;
    LOP3(0x96); o[0] = r; LOP3(0xe8); o[1] = r; LOP3(0x1b); o[2] = r; LOP3(0xca); o[3] = r;)

MAP(byte_dot_products, Ints, 6,
    const u32 a = (u32)x.a; const u32 b = (u32)x.b; const u32 c = (u32)x.c;
    o[0] = (u32)__dp4a((int)a, (int)b, (int)c); o[1] = __dp4a(a, b, c);
    o[2] = (u32)__dp2a_lo((int)a, (int)b, (int)c); o[3] = __dp2a_lo(a, b, c);
    o[4] = (u32)__dp2a_hi((int)a, (int)b, (int)c); o[5] = __dp2a_hi(a, b, c);)

MAP(wide_integers, Ints, 12,
    const unsigned __int128 a = ((unsigned __int128)x.a << 64) | x.b; const unsigned __int128 b = x.c | 1;
    const __int128 t = (__int128)a;
    unsigned __int128 r = a + ((unsigned __int128)x.c << 60); o[0] = (u64)r; o[1] = (u64)(r >> 64);
    r = a * (x.c | 1); o[2] = (u64)r; o[3] = (u64)(r >> 64);
    r = a / b; o[4] = (u64)r; o[5] = (u64)(r >> 64);
    r = a % b; o[6] = (u64)r; o[7] = (u64)(r >> 64);
    r = (unsigned __int128)(t >> (int)(x.c % 128)); o[8] = (u64)r; o[9] = (u64)(r >> 64);
    r = a - ((unsigned __int128)x.c << 70); o[10] = (u64)r; o[11] = (u64)(r >> 64);)

// 128-bit sums and products by carries.
MAP(carries, Ints, 10,
    u64 lo; u64 hi; u32 r0; u32 r1; u32 r2; const u32 a = (u32)x.a; const u32 b = (u32)x.b; const u32 c = (u32)x.c;
    asm("add.cc.u64 %0, %2, %3; addc.u64 %1, %4, 0;" : "=l"(lo), "=l"(hi) : "l"(x.a), "l"(x.b), "l"(x.c));
    o[0] = lo; o[1] = hi;
    asm("sub.cc.u64 %0, %2, %3; subc.u64 %1, %4, 0;" : "=l"(lo), "=l"(hi) : "l"(x.a), "l"(x.b), "l"(x.c));
    o[2] = lo; o[3] = hi;
    asm("{ mad.lo.cc.u32 %0, %3, %4, %5; madc.hi.cc.u32 %1, %3, %4, %5; addc.u32 %2, 0, 0; }"
        : "=&r"(r0), "=&r"(r1), "=&r"(r2) : "r"(a), "r"(b), "r"(c));
    o[4] = r0; o[5] = r1; o[6] = r2;
    asm("{ add.cc.u32 %0, %3, %4; addc.cc.u32 %1, %4, %5; addc.u32 %2, %5, %3; }"
        : "=&r"(r0), "=&r"(r1), "=&r"(r2) : "r"(a), "r"(b), "r"(c));
    o[7] = (u64)r0 ^ ((u64)r1 << 16) ^ ((u64)r2 << 32);
    // The flag after a difference, read by a sum: one says that there was no borrow. Division by 128 bits needs it.
    asm("{ sub.cc.u32 %0, %2, %3; addc.u32 %1, 0, 0; }" : "=&r"(r0), "=&r"(r1) : "r"(a), "r"(b)); o[8] = r1;
    asm("{ add.cc.u32 %0, %2, %3; subc.u32 %1, 7, 3; }" : "=&r"(r0), "=&r"(r1) : "r"(a), "r"(b)); o[9] = r1;)

// Predicates: combined conditions, selection by predicate and by sign, set as a mask.
MAP(selection, Ints, 8,
    const u32 a = (u32)x.a; const u32 b = (u32)x.b; u32 r;
    asm("{ .reg .pred p, q; setp.lt.u32 p|q, %1, %2; selp.u32 %0, 1, 2, p; @q add.u32 %0, %0, 4; }"
        : "=r"(r) : "r"(a), "r"(b)); o[0] = r;
    asm("{ .reg .pred p, q; setp.ne.u32 q, %1, 0; setp.ge.and.s32 p, %1, %2, q; selp.u32 %0, %1, %2, p; }"
        : "=r"(r) : "r"(a), "r"(b)); o[1] = r;
    asm("{ .reg .pred p, q; setp.eq.u32 q, %1, %1; setp.hi.xor.u32 p, %1, %2, !q; selp.u32 %0, 7, 9, p; }"
        : "=r"(r) : "r"(a), "r"(b)); o[2] = r;
    asm("slct.u32.s32 %0, %1, %2, %2;" : "=r"(r) : "r"(a), "r"(b)); o[3] = r;
    asm("set.gt.u32.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); o[4] = r;
    asm("{ .reg .pred p, q, s; setp.ls.u32 p, %1, %2; setp.lo.u32 q, %1, %2; xor.pred s, p, q; not.pred s, s;"
        " selp.u32 %0, 1, 0, s; }" : "=r"(r) : "r"(a), "r"(b)); o[5] = r;
    asm("{ .reg .f32 f; set.le.f32.s32 f, %1, %2; mov.b32 %0, f; }" : "=r"(r) : "r"(a), "r"(b)); o[6] = r;
    asm("cnot.b32 %0, %1;" : "=r"(r) : "r"(a & 1)); o[7] = r;)

MAP(nth_set_bit, Ints, 2,
    o[0] = __fns((u32)x.a, (u32)(x.b & 31), (int)(x.c % 9) - 4); o[1] = __fns((u32)x.a, 0, 3);)
