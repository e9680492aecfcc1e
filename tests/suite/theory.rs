//! The paper's statements as properties, over random shapes, seeds and scalings.
//!
//! References are written out from the definitions with Gaussian elimination, apart from the engine.

use muso::Error;
use muso::engine::{Engine, Matrix, SumsSpec, Targets};
use muso::gram::{DualGram, Gram, GramBuilder, Route};
use muso::labels::{Projector, column_select, leverage_scores};
use muso::solve::{Eigen, Method, Params, Solver, fit, gram_solver};
use muso::train::{SgdParams, sgd};
use proptest::prelude::*;

use crate::support::{EPS, engine, gauss_solve, gaussian, identity, matmul, minus, relative};

/// Retained and forgotten rows, their labels and the initial weights; D well above N, as the theorems assume.
#[derive(Clone, Debug)]
struct Problem {
    retained: Matrix,
    forgotten: Matrix,
    retained_labels: Matrix,
    forgotten_labels: Matrix,
    init: Matrix,
}

fn problems() -> impl Strategy<Value = Problem> {
    (
        2..14_usize,
        1..9_usize,
        1..4_usize,
        2..40_usize,
        any::<u64>(),
        -3..4_i32,
    )
        .prop_map(|(retained, forgotten, outputs, spare, seed, decade)| {
            let d = retained + forgotten + spare;
            let scale = 10_f64.powi(decade);
            let scaled = |m: Matrix| m.zip(&m, |x, _| scale * x);
            Problem {
                retained: scaled(gaussian(retained, d, seed)),
                forgotten: scaled(gaussian(forgotten, d, seed ^ 1)),
                retained_labels: gaussian(retained, outputs, seed ^ 2),
                forgotten_labels: gaussian(forgotten, outputs, seed ^ 3),
                init: gaussian(d, outputs, seed ^ 4),
            }
        })
}

impl Problem {
    fn all(&self) -> Matrix {
        self.retained.stack(&self.forgotten)
    }

    fn pretrained(&self) -> Matrix {
        let labels = self.retained_labels.stack(&self.forgotten_labels);
        closed_form(&self.all(), &labels, &self.init)
    }

    fn retrained(&self) -> Matrix {
        closed_form(&self.retained, &self.retained_labels, &self.init)
    }

    /// Fine-tuned from `pretrained` on retained rows and `forgotten` rows with other labels.
    fn unlearned(&self, forgotten: &Matrix, labels: &Matrix) -> Matrix {
        let (z, y) = (
            self.retained.stack(forgotten),
            self.retained_labels.stack(labels),
        );
        closed_form(&z, &y, &self.pretrained())
    }

    /// M = (K_uu − K_ur K_rr⁻¹ K_ru)⁻¹ of Lemma 2.
    fn schur_inverse(&self) -> Matrix {
        let (r, u) = (&self.retained, &self.forgotten);
        let k_uu = matmul(u, &u.transpose());
        let k_ru = matmul(r, &u.transpose());
        let k_rr = matmul(r, &r.transpose());
        let schur = minus(
            &k_uu,
            &matmul(&k_ru.transpose(), &gauss_solve(&k_rr, &k_ru)),
        );
        gauss_solve(&schur, &identity(u.rows()))
    }

    /// (I − Π_r) Z_uᵀ M, the coefficient matrix of Lemma 3 and Theorem 1.
    fn coefficient(&self) -> Matrix {
        let ut = self.forgotten.transpose();
        let outside = minus(&ut, &explicit_projection(&self.retained, &ut));
        matmul(&outside, &self.schur_inverse())
    }
}

/// w₀ + Zᵀ(ZZᵀ)⁻¹(Y − Z w₀).
fn closed_form(z: &Matrix, y: &Matrix, start: &Matrix) -> Matrix {
    let kernel = matmul(z, &z.transpose());
    let missing = minus(y, &matmul(z, start));
    let change = matmul(&z.transpose(), &gauss_solve(&kernel, &missing));
    start.zip(&change, |w, c| w + c)
}

/// Zᵀ(ZZᵀ)⁻¹Z V.
fn explicit_projection(z: &Matrix, v: &Matrix) -> Matrix {
    let kernel = matmul(z, &z.transpose());
    matmul(&z.transpose(), &gauss_solve(&kernel, &matmul(z, v)))
}

fn dual(z: &Matrix, y: &Matrix) -> Gram {
    Gram::Dual(DualGram::new(&engine(), z.clone(), y.clone(), false).unwrap())
}

fn primal(z: &Matrix, y: &Matrix) -> Gram {
    let engine = engine();
    let spec = SumsSpec {
        features: z.cols(),
        bias: false,
        targets: y.cols(),
    };
    let mut builder = GramBuilder::new(&engine, Route::Primal, spec).unwrap();
    builder
        .push(z.as_rows(), Targets::Values(y.as_rows()))
        .unwrap();
    builder.finish().unwrap()
}

fn no_targets(z: &Matrix) -> Matrix {
    Matrix::zeros(z.rows(), 0)
}

/// What rounding may make of a statement about these rows: k·eps·κ, with κ that of ZZᵀ, from the singular values of Z, and
/// k the terms of its sums, once for each of the few products and solves that a statement takes.
fn tight(z: &Matrix) -> f64 {
    const STEPS: f64 = 4.0;
    let view = faer::MatRef::from_row_major_slice(z.as_slice(), z.rows(), z.cols());
    let values = view.singular_values().unwrap();
    let spread = values[0] / values[z.rows() - 1];
    STEPS * z.cols() as f64 * EPS * spread * spread
}

/// ‖a − b‖ relative to the weights in play, so that "both are zero" also passes.
fn gap(a: &Matrix, b: &Matrix, scale: &Matrix) -> f64 {
    minus(a, b).norm() / scale.norm()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn lemma_1_engine_fit_is_the_closed_form(p in problems()) {
        let found = fit(&engine(), &dual(&p.retained, &p.retained_labels), &p.init, 0.0).unwrap();
        let wanted = p.retrained();
        prop_assert!(gap(&found.weights, &wanted, &wanted.stack(&p.init)) < tight(&p.retained));
        let fitted = matmul(&p.retained, &found.weights);
        let size = p.retained.norm() * found.weights.norm();
        prop_assert!(minus(&fitted, &p.retained_labels).norm() < 1e-12 * size, "it interpolates");
    }

    #[test]
    fn lemma_2_block_inverse(p in problems()) {
        let (r, u) = (&p.retained, &p.forgotten);
        let k_ru = matmul(r, &u.transpose());
        let k_rr_inverse = gauss_solve(&matmul(r, &r.transpose()), &identity(r.rows()));
        let m = p.schur_inverse();
        let left = matmul(&k_rr_inverse, &k_ru); // K_rr⁻¹ K_ru
        let corner = minus(&k_rr_inverse, &matmul(&matmul(&left, &m), &left.transpose()).zip(&k_rr_inverse, |x, _| -x));
        let side = matmul(&left, &m);
        let n = r.rows();
        let all = p.all();
        // The inverse as the engine computes it, column by column.
        let kernel = engine().kernel_matrix(all.as_rows(), all.as_rows(), false).unwrap();
        let solver_engine = engine();
        let solver = Solver::new(&solver_engine, kernel, Params::ridge(0.0)).unwrap();
        let (inverse, _) = solver.solve(&identity(all.rows())).unwrap();
        let blocks = Matrix::from_fn(all.rows(), all.rows(), |i, j| match (i < n, j < n) {
            (true, true) => corner[(i, j)],
            (true, false) => -side[(i, j - n)],
            (false, true) => -side[(j, i - n)],
            (false, false) => m[(i - n, j - n)],
        });
        prop_assert!(relative(&inverse, &blocks) < tight(&all), "off by {:e}", relative(&inverse, &blocks));
    }

    #[test]
    fn lemma_3_both_differences(p in problems(), seed in any::<u64>()) {
        let labels = gaussian(p.forgotten.rows(), p.init.cols(), seed);
        let c = p.coefficient();
        let (wp, wr) = (p.pretrained(), p.retrained());
        let k_rr = matmul(&p.retained, &p.retained.transpose());
        let missing = minus(&p.retained_labels, &matmul(&p.retained, &p.init));
        let k_ur = matmul(&p.forgotten, &p.retained.transpose());
        let seen = matmul(&k_ur, &gauss_solve(&k_rr, &missing));
        let first = seen
            .zip(&matmul(&p.forgotten, &p.init), |a, b| a + b)
            .zip(&p.forgotten_labels, |a, y| a - y);
        let tight = tight(&p.all());
        prop_assert!(gap(&minus(&wr, &wp), &matmul(&c, &first), &wp.stack(&wr)) < tight);
        let wu = p.unlearned(&p.forgotten, &labels);
        let second = minus(&matmul(&p.forgotten, &wp), &labels);
        prop_assert!(gap(&minus(&wp, &wu), &matmul(&c, &second), &wp.stack(&wu)) < tight);
    }

    #[test]
    fn theorem_1_gap_and_corollary_1_exactness(p in problems(), seed in any::<u64>()) {
        let engine = engine();
        let (wp, wr) = (p.pretrained(), p.retrained());
        let projector = Projector::new(&engine, dual(&p.retained, &no_targets(&p.retained)), 0.0).unwrap();
        let (best, _) = projector.optimal_weights(&wp, &p.init).unwrap();
        let optimal = engine.project(p.forgotten.as_rows(), &best).unwrap();

        // Theorem 1 with arbitrary labels.
        let labels = gaussian(p.forgotten.rows(), p.init.cols(), seed);
        let wu = p.unlearned(&p.forgotten, &labels);
        let wanted = matmul(&p.coefficient(), &minus(&optimal, &labels));
        let tight = tight(&p.all());
        prop_assert!(gap(&minus(&wr, &wu), &wanted, &wr.stack(&wu)) < tight);

        // Corollary 1: the optimal labels give the retrained model, and W* is it.
        let exact = p.unlearned(&p.forgotten, &optimal);
        prop_assert!(gap(&exact, &wr, &wr.stack(&wp)) < tight);
        prop_assert!(gap(&best, &wr, &wr.stack(&wp)) < tight);

        // It is the labels that do it: others miss, unless they happen to be the same.
        let miss = gap(&wu, &wr, &wr);
        let difference = minus(&optimal, &labels).norm();
        prop_assert!(miss > 1e-4 * difference / p.forgotten.norm() / wr.norm() * wr.norm().min(1.0));
    }

    #[test]
    fn remark_rows_already_spanned_change_nothing(p in problems(), seed in any::<u64>()) {
        // Forgotten rows made of retained ones: K is singular, so this is also the fallback's test.
        let engine = engine();
        let mixing = gaussian(p.forgotten.rows(), p.retained.rows(), seed);
        let forgotten = matmul(&mixing, &p.retained);
        let labels = matmul(&mixing, &p.retained_labels);
        let z = p.retained.stack(&forgotten);
        let y = p.retained_labels.stack(&labels);
        let wp = fit(&engine, &dual(&z, &y), &p.init, 0.0).unwrap();
        let is_eigen = matches!(wp.info.method, Method::Eigen { rank, .. } if rank == p.retained.rows());
        prop_assert!(is_eigen, "{:?}", wp.info);
        let wr = p.retrained();
        prop_assert!(gap(&wp.weights, &wr, &wr) < 1e-7, "{:e}", gap(&wp.weights, &wr, &wr));
        // Unlearning with its own predictions leaves it where it is.
        let wu = fit(&engine, &dual(&z, &matmul(&z, &wp.weights)), &wp.weights, 0.0).unwrap();
        prop_assert!(gap(&wu.weights, &wr, &wr) < 1e-7);
    }

    #[test]
    fn appendix_a_mixing_retained_rows_in_changes_nothing(
        p in problems(),
        c in 0.05..0.95_f64,
        seed in any::<u64>(),
    ) {
        let count = p.forgotten.rows().min(p.retained.rows());
        let some: Vec<usize> = (0..count).collect();
        let p = Problem { forgotten: p.forgotten.select_rows(&some), forgotten_labels: p.forgotten_labels.select_rows(&some), ..p };
        let (partner, partner_labels) = (p.retained.select_rows(&some), p.retained_labels.select_rows(&some));
        let labels = gaussian(count, p.init.cols(), seed);
        let mix = |u: &Matrix, r: &Matrix, c: f64| u.zip(r, |u, r| c * u + (1.0 - c) * r);
        // Rows and labels mixed alike: the same w_u for any c, and the same as without mixing.
        let plain = p.unlearned(&p.forgotten, &labels);
        let rows = mix(&p.forgotten, &partner, c);
        let tight = tight(&p.retained.stack(&rows)).max(tight(&p.all()));
        let mixed = p.unlearned(&rows, &mix(&labels, &partner_labels, c));
        prop_assert!(gap(&mixed, &plain, &plain) < tight);
        // The paper's case, labels of the partner: as if the forgotten rows had been given those labels.
        let paper = p.unlearned(&rows, &partner_labels);
        let relabelled = p.unlearned(&p.forgotten, &partner_labels);
        prop_assert!(gap(&paper, &relabelled, &relabelled) < tight);
    }

    #[test]
    fn primal_dual_and_explicit_projector_agree(p in problems(), decade in -6..1_i32, seed in any::<u64>()) {
        let engine = engine();
        let z = &p.retained;
        let d = z.cols();
        let norm = z.norm_squared() / z.rows() as f64;
        let ridge = norm * 10_f64.powi(decade);
        let v = gaussian(d, 3, seed);
        let kernel = matmul(z, &z.transpose());
        let shifted = Matrix::from_fn(z.rows(), z.rows(), |i, j| kernel[(i, j)] + if i == j { ridge } else { 0.0 });
        let explicit = matmul(&z.transpose(), &gauss_solve(&shifted, &matmul(z, &v)));
        let apply = |gram: Gram| {
            let projector = Projector::new(&engine, gram, ridge).unwrap();
            (projector.apply(&v).unwrap().0, projector.trace_ratio().unwrap())
        };
        let (by_dual, dual_trace) = apply(dual(z, &no_targets(z)));
        let (by_primal, primal_trace) = apply(primal(z, &no_targets(z)));
        prop_assert!(gap(&by_dual, &explicit, &v) < 1e-9, "{:e}", gap(&by_dual, &explicit, &v));
        prop_assert!(gap(&by_primal, &explicit, &v) < 1e-8, "{:e}", gap(&by_primal, &explicit, &v));
        prop_assert!((dual_trace - primal_trace).abs() < 1e-9);
        let whole = matmul(&z.transpose(), &gauss_solve(&shifted, z));
        let trace: f64 = (0..d).map(|i| whole[(i, i)]).sum::<f64>() / d as f64;
        prop_assert!((dual_trace - trace).abs() < 1e-9, "{dual_trace} against {trace}");
        // Fits agree as well, from any start.
        let dual_fit = fit(&engine, &dual(z, &p.retained_labels), &p.init, ridge).unwrap().weights;
        let primal_fit = fit(&engine, &primal(z, &p.retained_labels), &p.init, ridge).unwrap().weights;
        prop_assert!(gap(&dual_fit, &primal_fit, &p.init) < 1e-7);
    }

    #[test]
    fn projector_is_idempotent_with_spectrum_in_the_unit_interval(p in problems(), ridge in 0.0..2.0_f64) {
        let engine = engine();
        let z = &p.retained;
        let d = z.cols();
        let matrix = |ridge: f64| {
            let projector = Projector::new(&engine, dual(z, &no_targets(z)), ridge).unwrap();
            projector.apply(&identity(d)).unwrap().0
        };
        let pi = matrix(0.0);
        let tight = tight(z);
        prop_assert!(relative(&matmul(&pi, &pi), &pi) < tight, "idempotent without a ridge");
        prop_assert!(relative(&pi.transpose(), &pi) < tight, "symmetric");
        for pi in [pi, matrix(ridge * z.norm_squared())] {
            let eigen = Eigen::new(&pi).unwrap();
            prop_assert!(eigen.values.iter().all(|s| (-tight..1.0 + tight).contains(s)), "{:?}", eigen.values);
        }
    }

    #[test]
    fn the_released_woodbury_projector_is_not_a_projector(p in problems()) {
        // The authors' code puts (λI)⁻¹ where I belongs; what comes out is (1/λ)·Π(λ = 1).
        let engine = engine();
        let size = p.retained.norm() / (p.retained.rows() as f64).sqrt();
        let z = &p.retained.zip(&p.retained, |x, _| 2.0 * x / size); // rows of norm about 2
        let (n, d) = (z.rows(), z.cols());
        let lambda = 1e-3;
        let zzt = matmul(z, &z.transpose());
        let ztz = matmul(&z.transpose(), z);
        let inner = |c_inverse: f64| {
            let middle = Matrix::from_fn(d, d, |i, j| ztz[(i, j)] / lambda + if i == j { c_inverse } else { 0.0 });
            let woodbury = matmul(z, &gauss_solve(&middle, &z.transpose()));
            let inverse = Matrix::from_fn(n, n, |i, j| {
                f64::from(u8::from(i == j)) / lambda - woodbury[(i, j)] / (lambda * lambda)
            });
            matmul(&z.transpose(), &matmul(&inverse, z))
        };
        let ours = Projector::new(&engine, dual(z, &no_targets(z)), lambda).unwrap();
        let ours = ours.apply(&identity(d)).unwrap().0;
        let right = inner(1.0);
        let theirs = inner(1.0 / lambda);
        // Woodbury loses digits like (‖K‖/λ)²; that is why ours does not use it.
        prop_assert!(gap(&right, &ours, &ours) < 1e-6, "with I the identity holds");
        let unit = Projector::new(&engine, dual(z, &no_targets(z)), 1.0).unwrap();
        let unit = unit.apply(&identity(d)).unwrap().0;
        prop_assert!(gap(&theirs, &unit.zip(&unit, |x, _| x / lambda), &theirs) < 1e-6);
        let largest = Eigen::new(&theirs).unwrap().values[0];
        let top = Eigen::new(&zzt).unwrap().values[0];
        prop_assert!((largest / (top / (top + 1.0) / lambda) - 1.0).abs() < 1e-6);
        prop_assert!(largest > 700.0, "a projector's eigenvalues are at most 1, not {largest}");
        prop_assert!(relative(&matmul(&theirs, &theirs), &theirs) > 100.0, "not idempotent");
    }

    #[test]
    fn leverage_scores_match_the_singular_vectors(
        n in 1..40_usize,
        d in 1..25_usize,
        seed in any::<u64>(),
        k in 1..25_usize,
    ) {
        let engine = engine();
        let z = gaussian(n, d, seed);
        let rank = n.min(d);
        let k = k.min(rank);
        let Gram::Primal(sums) = primal(&z, &no_targets(&z)) else { unreachable!() };
        let eigen = Eigen::new(&sums.gram).unwrap();
        prop_assert_eq!(eigen.rank(0.0), rank);
        let found = leverage_scores(&engine, &eigen, z.as_rows(), Some(k)).unwrap();
        let view = faer::MatRef::from_row_major_slice(z.as_slice(), n, d);
        let svd = view.thin_svd().unwrap();
        for (i, score) in found.iter().enumerate() {
            let wanted = (0..k).map(|j| svd.U()[(i, j)].powi(2)).sum::<f64>() / k as f64;
            let gaps = (0..rank - 1).map(|j| svd.S()[j] - svd.S()[j + 1]).fold(f64::INFINITY, f64::min);
            prop_assert!((score - wanted).abs() < 1e-10 / gaps.min(1.0).powi(2), "{score} against {wanted}");
        }
        prop_assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-8);
    }
}

#[test]
fn sgd_in_sample_coordinates_is_plain_sgd() {
    let (n, d) = (30, 80);
    let z = gaussian(n, d, 1);
    let unit = Matrix::from_fn(n, d, |i, j| {
        z[(i, j)] / z.as_rows().slice(i, i + 1).to_matrix().norm()
    });
    let (y, start) = (gaussian(n, 1, 2), gaussian(d, 1, 3));
    let params = SgdParams {
        max_epochs: 3,
        tolerance: 0.0,
        ..SgdParams::paper(5)
    };
    let kernel = engine()
        .kernel_matrix(unit.as_rows(), unit.as_rows(), false)
        .unwrap();
    let outcome = sgd(
        &kernel,
        matmul(&unit, &start).as_slice(),
        y.as_slice(),
        &params,
        &mut (),
    );
    assert_eq!(outcome.steps, 3 * n);

    // Plain SGD on w itself, with the same order of samples.
    use rand::{RngExt, SeedableRng};
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
    let mut order: Vec<usize> = (0..n).collect();
    let mut w = start.clone();
    for _ in 0..3 {
        for i in (1..n).rev() {
            order.swap(i, rng.random_range(0..=i));
        }
        for (t, &i) in order.iter().enumerate() {
            let error: f64 = unit
                .row(i)
                .iter()
                .zip(w.as_slice())
                .map(|(z, w)| z * w)
                .sum::<f64>()
                - y[(i, 0)];
            let step = (t as f64 + 1.0).powf(-0.2) * 2.0 * error;
            for (w, z) in w.as_mut_slice().iter_mut().zip(unit.row(i)) {
                *w -= step * z;
            }
        }
    }
    let a = Matrix::from_vec(n, 1, outcome.coefficients);
    let back = start.zip(&matmul(&unit.transpose(), &a), |w, c| w + c);
    assert!(relative(&back, &w) < 1e-12, "{:e}", relative(&back, &w));
    let residual = minus(&matmul(&unit, &w), &y).norm();
    assert!((outcome.residual / residual - 1.0).abs() < 1e-9);
}

#[test]
fn sgd_converges_to_the_closed_form() {
    let (n, d) = (20, 100);
    let z = gaussian(n, d, 11);
    let unit = Matrix::from_fn(n, d, |i, j| {
        z[(i, j)] / z.as_rows().slice(i, i + 1).to_matrix().norm()
    });
    let (y, start) = (gaussian(n, 1, 12), gaussian(d, 1, 13));
    let engine = engine();
    let kernel = engine
        .kernel_matrix(unit.as_rows(), unit.as_rows(), false)
        .unwrap();
    let outcome = sgd(
        &kernel,
        matmul(&unit, &start).as_slice(),
        y.as_slice(),
        &SgdParams::paper(1),
        &mut (),
    );
    assert!(outcome.residual < 1e-6 && outcome.steps < 1_500 * n);
    let a = Matrix::from_vec(n, 1, outcome.coefficients);
    let change = engine.pull_back(unit.as_rows(), &a, false).unwrap();
    let reached = start.zip(&change, |w, c| w + c);
    assert!(minus(&reached, &closed_form(&unit, &y, &start)).norm() < 1e-5);
}

#[test]
fn column_select_follows_the_scores() {
    let scores = [0.5, 0.0, 0.3, 0.2];
    let drawn = column_select(&scores, 20_000, 3);
    assert_eq!(drawn.len(), 20_000);
    assert!(drawn.windows(2).all(|w| w[0] <= w[1]));
    for (row, score) in scores.iter().enumerate() {
        let share = drawn.iter().filter(|&&r| r == row).count() as f64 / 20_000.0;
        assert!(
            (share - score).abs() < 0.02,
            "row {row}: {share} against {score}"
        );
    }
    assert_eq!(column_select(&scores, 50, 9), column_select(&scores, 50, 9));
}

#[test]
fn an_ill_conditioned_system_is_solved_and_said_to_be_one() {
    // ‖G‖/λ = 1e12 with the data spanning half the space.
    let engine = engine();
    let (n, d) = (60, 40);
    let basis = gaussian(20, d, 1);
    let z = matmul(&gaussian(n, 20, 2), &basis);
    let Gram::Primal(sums) = primal(&z, &no_targets(&z)) else {
        unreachable!()
    };
    let norm = Eigen::new(&sums.gram).unwrap().values[0];
    let ridge = norm * 1e-12;
    let v = gaussian(d, 2, 3);
    let solver = Solver::new(&engine, sums.gram.clone(), Params::ridge(ridge)).unwrap();
    let (projected, info) = solver.project_onto_span(&v).unwrap();
    let wanted = explicit_projection(&basis, &v);
    assert!(
        relative(&projected, &wanted) < 1e-3,
        "{:e}",
        relative(&projected, &wanted)
    );
    // The norm is the largest row sum: between the 2-norm and √D of it.
    let ratio = info.ridge_ratio().unwrap() / 1e12;
    assert!((0.999..(d as f64).sqrt()).contains(&ratio), "{ratio}");
    // Half the space: tr(Π)/D = 1/2.
    assert!((solver.projector_trace().unwrap() / d as f64 - 0.5).abs() < 1e-3);
    // At 1e-14 the warning speaks; with no ridge the fallback finds the rank.
    let solver = Solver::new(&engine, sums.gram.clone(), Params::ridge(norm * 1e-14)).unwrap();
    assert!(solver.warning().unwrap().is_some());
    let solver = Solver::new(&engine, sums.gram.clone(), Params::ridge(0.0)).unwrap();
    assert!(
        matches!(solver.info().method, Method::Eigen { rank: 20, .. }),
        "{:?}",
        solver.info()
    );
    let (projected, _) = solver.project_onto_span(&v).unwrap();
    assert!(relative(&projected, &wanted) < 1e-9);
    let negative = Solver::new(&engine, sums.gram, Params::ridge(-1e-3));
    assert!(matches!(negative.err(), Some(Error::Parameter { .. })));
    let (x, _) = solver.solve(&v).unwrap();
    assert!(x.as_slice().iter().all(|x| x.is_finite()));
}

#[test]
fn refinement_lowers_the_residual_and_reports_it() {
    let engine = engine();
    let z = gaussian(300, 200, 4);
    // Ill-conditioned in a way that no change of units mends: singular values over five decades, mixed.
    let graded = Matrix::from_fn(300, 200, |i, j| {
        z[(i, j)] * 10_f64.powf(-5.0 * j as f64 / 200.0)
    });
    let scaled = matmul(&graded, &gaussian(200, 200, 5));
    let Gram::Primal(sums) = primal(&scaled, &no_targets(&scaled)) else {
        unreachable!()
    };
    let solver = Solver::new(&engine, sums.gram.clone(), Params::ridge(0.0)).unwrap();
    let b = gaussian(200, 5, 6);
    let (x, info) = solver.solve(&b).unwrap();
    let residual = minus(&matmul(&sums.gram, &x), &b).norm() / b.norm();
    assert!(info.residual_after <= info.residual_before);
    assert!(
        (residual / info.residual_after).log10().abs() < 1.0,
        "{residual:e}, {info:?}"
    );
    let condition = solver.condition().unwrap();
    let d = |i: usize| sums.gram[(i, i)].sqrt();
    let equilibrated = Matrix::from_fn(200, 200, |i, j| sums.gram[(i, j)] / d(i) / d(j));
    let values = Eigen::new(&equilibrated).unwrap().values;
    let truth = values[0] / values[199];
    assert!(
        condition <= truth * 1.001 && condition > truth / 10.0,
        "{condition:e} against {truth:e}"
    );
    // Without the step the solution is the one before it.
    let plain = Params {
        refine: false,
        ..Params::ridge(0.0)
    };
    let solver = Solver::new(&engine, sums.gram.clone(), plain).unwrap();
    let (rough, unrefined) = solver.solve(&b).unwrap();
    assert_eq!(unrefined.residual_after, info.residual_before);
    assert!(rough != x, "the step changed nothing");
}

#[test]
fn a_feature_in_other_units_changes_nothing() {
    // One column a hundred million times the others: G has condition 1e16, but only because of its units.
    let engine = engine();
    let (n, d) = (60, 8);
    let z = gaussian(n, d, 51);
    let y = gaussian(n, 2, 52);
    for scale in [1e-8, 1e8, 1e12] {
        let scaled = Matrix::from_fn(n, d, |i, j| z[(i, j)] * if j == 3 { scale } else { 1.0 });
        let found = fit(&engine, &primal(&scaled, &y), &Matrix::zeros(d, 2), 0.0).unwrap();
        assert!(
            matches!(found.info.method, Method::Cholesky { .. }),
            "{:?}",
            found.info
        );
        let plain = fit(&engine, &primal(&z, &y), &Matrix::zeros(d, 2), 0.0)
            .unwrap()
            .weights;
        let back = Matrix::from_fn(d, 2, |i, j| {
            found.weights[(i, j)] * if i == 3 { scale } else { 1.0 }
        });
        assert!(
            relative(&back, &plain) < 1e-12,
            "{scale:e}: {:e}",
            relative(&back, &plain)
        );
    }
}

#[test]
fn the_fallback_keeps_the_start_where_no_row_looks() {
    // A feature that is always zero, one that doubles another, and one in other units; without a ridge.
    let engine = engine();
    let (n, d) = (50, 7);
    let free = gaussian(n, d, 61);
    let z = Matrix::from_fn(n, d, |i, j| match j {
        2 => 0.0,
        4 => 2.0 * free[(i, 1)],
        5 => 1e7 * free[(i, 5)],
        _ => free[(i, j)],
    });
    let (y, start) = (gaussian(n, 2, 62), gaussian(d, 2, 63));
    let found = fit(&engine, &primal(&z, &y), &start, 0.0).unwrap();
    assert!(
        matches!(found.info.method, Method::Eigen { rank: 5, .. }),
        "{:?}",
        found.info
    );
    // The least-squares fit nearest to the start, by elimination over a basis of what the rows see.
    let seen = Matrix::from_fn(5, d, |k, j| match (k, j) {
        (0, 0) | (2, 3) | (4, 6) => 1.0,
        (1, 1) => 1.0 / 5_f64.sqrt(),
        (1, 4) => 2.0 / 5_f64.sqrt(),
        (3, 5) => 1.0,
        _ => 0.0,
    });
    let reduced = matmul(&z, &seen.transpose());
    let missing = minus(&y, &matmul(&z, &start));
    let normal = matmul(&reduced.transpose(), &reduced);
    let unit = Matrix::from_fn(5, 5, |i, j| {
        normal[(i, j)] / (normal[(i, i)] * normal[(j, j)]).sqrt()
    });
    let right = matmul(&reduced.transpose(), &missing);
    let right = Matrix::from_fn(5, 2, |i, j| right[(i, j)] / normal[(i, i)].sqrt());
    let step = gauss_solve(&unit, &right);
    let step = Matrix::from_fn(5, 2, |i, j| step[(i, j)] / normal[(i, i)].sqrt());
    let wanted = start.zip(&matmul(&seen.transpose(), &step), |w, c| w + c);
    // The dropped directions are known to eps times the ratio of the units.
    let allowed = 10.0 * 1e7 * EPS;
    let gap = relative(&found.weights, &wanted);
    assert!(gap < allowed, "{gap:e}");
    // What is kept and what is dropped make the whole, and the projector is the kept part.
    let solver = gram_solver(&engine, &primal(&z, &y), 0.0).unwrap();
    let (kept, _) = solver.project_onto_span(&start).unwrap();
    let dropped = solver.dropped_part(&start).unwrap().unwrap();
    assert!(relative(&kept.zip(&dropped, |a, b| a + b), &start) < 1e-14);
    let wanted = matmul(&seen.transpose(), &matmul(&seen, &start));
    assert!(relative(&kept, &wanted) < allowed);
    assert_eq!(solver.projector_trace().unwrap(), 5.0);
}

#[test]
fn dependent_columns_are_seen_through_the_rounding_of_many_rows() {
    // [a, 3a] over many rows: what is left of the second column is the noise of the sums, and must not be solved with.
    let engine = engine();
    for seed in 0..4 {
        let a = gaussian(50_000, 1, 70 + seed);
        let z = Matrix::from_fn(50_000, 2, |i, j| a[(i, 0)] * [1.0, 3.0][j]);
        let found = fit(&engine, &primal(&z, &a), &Matrix::zeros(2, 1), 0.0)
            .unwrap()
            .weights;
        let wanted = Matrix::from_vec(2, 1, vec![0.1, 0.3]);
        assert!(relative(&found, &wanted) < 1e-12, "{found:?}");
    }
}

#[test]
fn failures_are_typed() {
    let engine = engine();
    let singular = Matrix::from_vec(2, 2, vec![1.0, 1.0, 1.0, 1.0]);
    let strict = Params {
        fallback: false,
        ..Params::ridge(0.0)
    };
    let failed = Solver::new(&engine, singular.clone(), strict).err();
    assert!(
        matches!(failed, Some(Error::NotPositiveDefinite { pivot: 1, .. })),
        "{failed:?}"
    );
    assert!(Solver::new(&engine, singular, Params::ridge(0.0)).is_ok());

    let huge = Matrix::from_vec(2, 1, vec![1e200, 1.0]);
    let overflowed = fit(&engine, &primal(&huge, &huge), &Matrix::zeros(1, 1), 1.0).err();
    assert!(
        matches!(overflowed, Some(Error::Overflow)),
        "{overflowed:?}"
    );
    let fine = Solver::new(&engine, identity(2), Params::ridge(0.0)).unwrap();
    let infinite = Matrix::from_vec(2, 1, vec![f64::INFINITY, 0.0]);
    assert!(matches!(fine.solve(&infinite).err(), Some(Error::Overflow)));

    // Samples of norm 3: every step overshoots.
    let kernel = Matrix::from_vec(2, 2, vec![9.0, 4.0, 4.0, 9.0]);
    let outcome = sgd(
        &kernel,
        &[0.0, 0.0],
        &[1.0, -1.0],
        &SgdParams::paper(1),
        &mut (),
    );
    assert!(!outcome.residual.is_finite() && outcome.steps < 2 * 1_500);
}
