//! The labels of networks against plain f64 references, and the updates that compute them beside training.

use muso::engine::{Matrix, SumsSpec, Targets, head_matrix, to_tensor};
use muso::gram::{GramBuilder, Route};
use muso::labels::{Projector, TargetFit, TargetForm, TargetParams, network_labels};
use muso::models::burn::module::Param;
use muso::models::burn::nn::Linear;
use muso::models::burn::tensor::{Device, Tensor};
use muso::scheduler::{LabelUpdates, Scheduler};
use muso::{Error, Result};

use crate::support::{engine, gauss_solve, gaussian, identity, matmul, minus, relative};

/// The problem of an update: features without the bias column, heads with the bias row.
struct Case {
    retained: Matrix,
    forgotten: Matrix,
    trained: Matrix,
    initial: Matrix,
    reference: Matrix,
    ridge: f64,
}

const WIDTH: usize = 7;
const CLASSES: usize = 3;

impl Case {
    fn new(rows: usize, ridge: f64) -> Self {
        // As burn has them: what goes through f32 is exact there.
        let f32s = |m: Matrix| m.zip(&m, |a, _| f64::from(a as f32));
        Self {
            retained: f32s(gaussian(rows, WIDTH, 1)),
            forgotten: f32s(gaussian(5, WIDTH, 2)),
            trained: f32s(gaussian(WIDTH + 1, CLASSES, 3)),
            initial: f32s(gaussian(WIDTH + 1, CLASSES, 4)),
            reference: gaussian(5, CLASSES, 5),
            ridge,
        }
    }

    /// Z with the feature that is always 1.
    fn with_one(z: &Matrix) -> Matrix {
        Matrix::from_fn(z.rows(), z.cols() + 1, |i, j| {
            if j == z.cols() { 1.0 } else { z[(i, j)] }
        })
    }

    /// Z_u(w_0 + Π(w_p − w_0) + w_p), where Π = Zᵀ(ZZᵀ + λI)⁻¹Z is formed, as nothing else here does.
    fn outputs(&self) -> Matrix {
        let z = Self::with_one(&self.retained);
        let zt = z.transpose();
        let kernel = matmul(&z, &zt);
        let damped = kernel.zip(&identity(z.rows()), |k, one| k + self.ridge * one);
        let projector = matmul(&zt, &gauss_solve(&damped, &z));
        let moved = matmul(&projector, &minus(&self.trained, &self.initial));
        let optimal = self.initial.zip(&moved, |a, b| a + b);
        let weights = optimal.zip(&self.trained, |a, b| a + b);
        matmul(&Self::with_one(&self.forgotten), &weights)
    }

    fn expected(&self) -> Matrix {
        minus(&self.outputs(), &self.reference)
    }

    fn heads(&self) -> [Linear; 2] {
        [&self.trained, &self.initial].map(|weights| {
            let tensor = to_tensor(weights, &Device::flex());
            Linear {
                weight: Param::from_tensor(tensor.clone().narrow(0, 0, WIDTH)),
                bias: Some(Param::from_tensor(
                    tensor.narrow(0, WIDTH, 1).reshape([CLASSES]),
                )),
            }
        })
    }

    /// The retained rows as tensors, in batches that do not divide them evenly.
    fn batches(&self) -> Vec<Tensor<2>> {
        let all = to_tensor(&self.retained, &Device::flex());
        (0..self.retained.rows())
            .step_by(6)
            .map(|start| {
                let length = 6.min(self.retained.rows() - start);
                all.clone().narrow(0, start, length)
            })
            .collect()
    }

    fn forgotten_tensor(&self) -> Tensor<2> {
        to_tensor(&self.forgotten, &Device::flex())
    }
}

/// More rows than features and fewer: the primal route and the dual.
fn cases() -> [Case; 3] {
    [Case::new(40, 1e-2), Case::new(40, 3.0), Case::new(4, 0.5)]
}

#[test]
fn network_labels_are_the_formula() {
    let engine = engine();
    for case in cases() {
        let rows = case.retained.rows();
        let spec = SumsSpec {
            features: WIDTH,
            bias: true,
            targets: 0,
        };
        let route = Route::choose(rows as u64, spec.order());
        let mut builder = GramBuilder::new(&engine, route, spec).unwrap();
        builder
            .push(case.retained.as_rows(), Targets::None)
            .unwrap();
        let projector = Projector::new(&engine, builder.finish().unwrap(), case.ridge).unwrap();
        let labels = network_labels(
            &engine,
            &projector,
            &case.trained,
            &case.initial,
            case.forgotten.as_rows(),
            &case.reference,
        )
        .unwrap();
        let gap = relative(&labels, &case.expected());
        assert!(gap < 1e-11, "{rows} rows: {gap}");
    }
}

#[test]
fn a_head_becomes_weights_with_the_bias_below() {
    let case = Case::new(4, 1.0);
    let [trained, _] = case.heads();
    assert_eq!(head_matrix(&trained), case.trained);
    let without = Linear {
        bias: None,
        ..trained
    };
    let found = head_matrix(&without);
    assert_eq!(found.row(0), case.trained.row(0));
    assert_eq!(found.row(WIDTH), [0.0; CLASSES]);
}

#[test]
fn updates_compute_the_formula_on_either_route_with_lanes_and_without() {
    for case in cases() {
        let [trained, initial] = case.heads();
        for depth in [0, 2] {
            let mut labels = LabelUpdates::new(&engine(), &trained, &initial)
                .ridge(case.ridge)
                .reference(case.reference.clone())
                .scheduler(Scheduler::default().with_depth(depth));
            labels
                .start(case.batches(), [case.forgotten_tensor()])
                .unwrap();
            let found = labels.wait().unwrap().expect("labels that are due");
            let gap = relative(&found, &case.expected());
            assert!(gap < 1e-11, "{} rows: {gap}", case.retained.rows());
            assert!(
                labels.wait().unwrap().is_none(),
                "they are handed over once"
            );
        }
    }
}

/// Without a reference, what the original head says of the features of the first update stands in for it, in every update.
#[test]
fn the_first_update_is_the_reference_of_all() {
    let case = Case::new(40, 0.1);
    let [trained, initial] = case.heads();
    let first = matmul(&Case::with_one(&case.forgotten), &case.trained);
    for depth in [0, 2] {
        let mut labels = LabelUpdates::new(&engine(), &trained, &initial)
            .ridge(case.ridge)
            .scheduler(Scheduler::default().with_depth(depth));
        labels
            .start(case.batches(), [case.forgotten_tensor()])
            .unwrap();
        // The second has other features, and is started before the first is handed over.
        let twice = case.forgotten_tensor() * 2.0;
        labels.start(case.batches(), [twice]).unwrap();
        let found = labels.wait().unwrap().unwrap();
        let doubled = Case {
            forgotten: case.forgotten.zip(&case.forgotten, |a, b| a + b),
            ..Case::new(40, 0.1)
        };
        let gap = relative(&found, &minus(&doubled.outputs(), &first));
        assert!(gap < 1e-11, "{gap}");
    }
}

/// An update of its own for each number: the forgotten rows times it.
fn numbered(labels: &mut LabelUpdates<muso::engine::CpuEngine>, case: &Case, number: f64) {
    // A power of two, so that f32 does not round.
    let forgotten = case.forgotten_tensor() * number.exp2();
    labels.start(case.batches(), [forgotten]).unwrap();
}

fn number_of(case: &Case, labels: &Matrix) -> usize {
    let outputs = |number: f64| {
        Case {
            forgotten: case.forgotten.zip(&case.forgotten, |a, _| number * a),
            ..Case::new(40, case.ridge)
        }
        .expected()
    };
    (1..9)
        .find(|&n| relative(labels, &outputs((n as f64).exp2())) < 1e-10)
        .expect("labels of one of the updates")
}

#[test]
fn staleness_is_the_number_of_updates_that_labels_are_late() {
    let case = Case::new(40, 0.1);
    let [trained, initial] = case.heads();
    for depth in [0, 2] {
        let new = |staleness| {
            LabelUpdates::new(&engine(), &trained, &initial)
                .ridge(case.ridge)
                .reference(case.reference.clone())
                .staleness(staleness)
                .scheduler(Scheduler::default().with_depth(depth))
        };
        let mut labels = new(0);
        for number in 1..4 {
            numbered(&mut labels, &case, number as f64);
            assert_eq!(number_of(&case, &labels.wait().unwrap().unwrap()), number);
            assert!(labels.wait().unwrap().is_none());
        }
        let mut labels = new(1);
        // The first has none before it, and stays in use for two rounds.
        numbered(&mut labels, &case, 1.0);
        assert_eq!(number_of(&case, &labels.wait().unwrap().unwrap()), 1);
        numbered(&mut labels, &case, 2.0);
        assert!(labels.wait().unwrap().is_none());
        assert!(
            labels.wait().unwrap().is_none(),
            "asking again changes nothing"
        );
        numbered(&mut labels, &case, 3.0);
        assert_eq!(number_of(&case, &labels.wait().unwrap().unwrap()), 2);
        labels.skip();
        assert_eq!(number_of(&case, &labels.wait().unwrap().unwrap()), 3);
        assert!(labels.wait().unwrap().is_none());
    }
}

#[test]
fn what_fails_in_an_update_comes_out_of_it() {
    let case = Case::new(40, 0.1);
    let [trained, initial] = case.heads();
    let new = || LabelUpdates::new(&engine(), &trained, &initial);
    // An error in place of a batch.
    let mut labels = new();
    let broken = case
        .batches()
        .into_iter()
        .map(Ok)
        .chain([Err(Error::Interrupted)]);
    labels.start(broken, [case.forgotten_tensor()]).unwrap();
    assert!(matches!(labels.wait(), Err(Error::Interrupted)));
    // Rows of another width, and a reference of other rows.
    let mut labels = new();
    let wide: Vec<Result<Tensor<2>>> = vec![Ok(Tensor::ones([50, WIDTH + 2], &Device::flex()))];
    labels.start(wide, [case.forgotten_tensor()]).unwrap();
    let error = labels.wait().unwrap_err().to_string();
    assert!(
        error.contains("9 columns") && error.contains('7'),
        "{error}"
    );
    let mut labels = new().reference(Matrix::zeros(2, CLASSES));
    labels
        .start(case.batches(), [case.forgotten_tensor()])
        .unwrap();
    let error = labels.wait().unwrap_err().to_string();
    assert!(error.contains("2×3") && error.contains("5×3"), "{error}");
}

#[test]
fn the_target_form_does_not_depend_on_how_its_rows_come() {
    let (n, d, c) = (101, 6, 3);
    let z = gaussian(n, d, 7);
    let z = z.zip(&z, |a, _| f64::from(a as f32));
    // Classes of three sizes, and rows of them all mixed up.
    let classes: Vec<i64> = (0..n).map(|i| [0, 1, 1, 2, 0, 1][(i * i) % 6]).collect();
    let engine = engine();
    for balance in [0.0, 0.5, 1.0] {
        let params = TargetParams {
            relative_ridge: 1e-2,
            balance,
        };
        let whole = TargetForm::fit(&engine, z.as_rows(), &classes, c, &params).unwrap();
        let mut fit = TargetFit::new(&engine, &classes, c, params).unwrap();
        let device = Device::flex();
        for rows in fit.order().chunks(13) {
            fit.update(&to_tensor(&z.select_rows(rows), &device))
                .unwrap();
        }
        let mut model = fit.solve().unwrap();
        for start in (0..n).step_by(17) {
            let rows = z.as_rows().slice(start, n.min(start + 17));
            model.leave_out(rows).unwrap();
        }
        let streamed = model.finish().unwrap();
        assert_eq!(streamed.weights, whole.weights);
        // Systems of other widths are solved with other roundings.
        assert!(relative(&streamed.left_out, &whole.left_out) < 1e-13);
        assert!((streamed.temperature - whole.temperature).abs() < 1e-9);
    }
    let mut fit = TargetFit::new(&engine, &classes, c, PARAMS).unwrap();
    fit.push(z.as_rows().slice(0, 50)).unwrap();
    let error = fit.solve().err().unwrap().to_string();
    assert!(
        error.contains("50 rows") && error.contains("101"),
        "{error}"
    );
}

/// Each row counts as (rows of an average class / rows of its class)^balance, and rows that count alike come together.
#[test]
fn the_target_form_by_hand() {
    let engine = engine();
    // One row of class 0, four of class 2, none of class 1.
    let z = Matrix::from_vec(5, 1, vec![2.0, 1.0, -1.0, 0.5, 3.0]);
    let classes = [2, 2, 0, 2, 2];
    let params = TargetParams {
        relative_ridge: 0.1,
        balance: 0.5,
    };
    let mut fit = TargetFit::new(&engine, &classes, 3, params).unwrap();
    assert_eq!(fit.order(), [0, 1, 3, 4, 2]);
    for row in fit.order() {
        fit.push(z.as_rows().slice(row, row + 1)).unwrap();
    }
    let mut model = fit.solve().unwrap();
    model.leave_out(z.as_rows()).unwrap();
    let form = model.finish().unwrap();
    let weight = |class: i64| (2.5 / if class == 0 { 1.0 } else { 4.0_f64 }).sqrt();
    let ones = Matrix::from_fn(5, 2, |i, j| if j == 1 { 1.0 } else { z[(i, 0)] });
    let weighted = Matrix::from_fn(5, 2, |i, j| weight(classes[i]) * ones[(i, j)]);
    let gram = matmul(&weighted.transpose(), &ones);
    let ridge = 0.1 * (gram[(0, 0)] + gram[(1, 1)]) / 2.0;
    assert!(
        (form.ridge - ridge).abs() < 1e-14 * ridge,
        "{} {ridge}",
        form.ridge
    );
    let targets = Matrix::from_fn(5, 3, |i, k| {
        f64::from(u8::from(classes[i] == k as i64)) - 1.0 / 3.0
    });
    let damped = gram.zip(&identity(2), |g, one| g + ridge * one);
    let weights = gauss_solve(&damped, &matmul(&weighted.transpose(), &targets));
    assert!(relative(&form.weights, &weights) < 1e-13);
    // Without it, nobody has ever heard of class 0.
    assert_eq!(form.left_out_accuracy, 80.0);
}

const PARAMS: TargetParams = TargetParams {
    relative_ridge: 1e-2,
    balance: 0.5,
};

/// The k that is found gives the left-out rows the entropy that was asked for.
#[test]
fn sharpness_gives_the_entropy_that_is_wanted() {
    let z = gaussian(60, 5, 9);
    let classes: Vec<i64> = (0..60)
        .map(|i| i64::from(z[(i, 0)] > 0.0) + i64::from(z[(i, 1)] > 0.7))
        .collect();
    let form = TargetForm::fit(&engine(), z.as_rows(), &classes, 3, &PARAMS).unwrap();
    let entropy_at = |k: f64| {
        let rows = 0..form.left_out.rows();
        let entropies = rows.map(|i| {
            let scores = form.left_out.row(i);
            let powers: Vec<f64> = scores
                .iter()
                .map(|s| (k * form.temperature * s).exp())
                .collect();
            let total: f64 = powers.iter().sum();
            -powers
                .iter()
                .map(|p| p / total * (p / total).ln())
                .sum::<f64>()
        });
        entropies.sum::<f64>() / form.left_out.rows() as f64
    };
    for wanted in [0.2, 0.5, 1.0] {
        let k = form.sharpness_of(wanted);
        // Distributions are f32.
        let found = entropy_at(k);
        assert!((found - wanted).abs() < 1e-6, "{k}: {found} {wanted}");
    }
    // What no k gives is answered by the end of the range.
    assert!(form.sharpness_of(2.0) < 1.01e-3);
    assert!((0.99e3..1.01e3).contains(&form.sharpness_of(-1.0)));
}
