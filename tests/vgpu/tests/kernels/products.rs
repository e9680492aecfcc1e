//! projection and rff: products whose results are not sums over rows.

use crate::device::{Arg, Dtype, Gpu, NULL, even};
use crate::reference::{Dot, Table, U};
use crate::tiles::{TALL, TILE};
use crate::{Test, args};

/// The tests, for `main.rs`.
pub(crate) const TESTS: &[Test] = &[
    ("projection_holds", projection_holds),
    (
        "equal_scores_give_the_first_class",
        equal_scores_give_the_first_class,
    ),
    ("kernel_matrix_holds", kernel_matrix_holds),
    ("random_features_hold", random_features_hold),
    (
        "sine_and_cosine_are_right_to_two_units",
        sine_and_cosine_are_right_to_two_units,
    ),
];

/// Y = Z W − Z₂W₂ with optional biases, as the kernels take it.
struct Scores {
    z: Table,
    w: Table,
    bias: bool,
    second: Option<(Table, Table, bool)>,
    dtype: Dtype,
    pitch: usize,
}

impl Scores {
    fn random(rows: usize, features: usize, classes: usize, dtype: Dtype, seed: u64) -> Self {
        let bias = seed.is_multiple_of(2);
        let second = seed.is_multiple_of(3).then(|| {
            let features = features / 2 + 1;
            let z = Table::random(rows, features, dtype, seed + 2);
            (
                z,
                Table::random(features + usize::from(!bias), classes, Dtype::F64, seed + 3),
                !bias,
            )
        });
        Self {
            z: Table::random(rows, features, dtype, seed),
            w: Table::random(features + usize::from(bias), classes, Dtype::F64, seed + 1),
            bias,
            second,
            dtype,
            pitch: features + (seed % 4) as usize,
        }
    }

    fn shape(&self) -> (usize, usize) {
        (self.z.rows, self.w.cols)
    }

    /// The exact score and how many roundings it may have seen.
    fn dot(&self, i: usize, j: usize) -> (Dot, f64) {
        let mut dot = Dot::default();
        let mut terms = 0;
        let mut add = |sign: f64, z: &Table, w: &Table| {
            for k in 0..w.rows {
                let feature = if k < z.cols { z[(i, k)] } else { 1.0 };
                dot.add(sign * feature, w[(k, j)]);
            }
            terms += w.rows;
        };
        add(1.0, &self.z, &self.w);
        if let Some((z, w, _)) = &self.second {
            add(-1.0, z, w);
        }
        (dot, terms as f64 + 2.0)
    }

    fn launch(&self, gpu: &Gpu, verb: &str, technique: &str, tail: &[Arg]) {
        let (rows, classes) = self.shape();
        let w_pitch = even(classes);
        let z = gpu.upload(&self.z, self.dtype, self.pitch);
        let w = gpu.upload(&self.w, Dtype::F64, w_pitch);
        let mut args = args![&z, self.pitch, rows, self.z.cols, &w, w_pitch, self.bias].to_vec();
        match &self.second {
            Some((z, w, bias)) => {
                let z2 = gpu.upload(z, self.dtype, z.cols);
                let w2 = gpu.upload(w, Dtype::F64, w_pitch);
                args.extend(args![&z2, z.cols, z.cols, &w2, w_pitch, *bias]);
            }
            None => args.extend(args![NULL, 0_usize, 0_usize, NULL, 0_usize, false]),
        }
        args.extend(args![classes]);
        args.extend(tail);
        let (grid, block) = match (verb, technique) {
            ("logits", "plain") => ([classes.div_ceil(16), rows.div_ceil(16), 1], [16, 16]),
            ("logits", _) => (
                [rows.div_ceil(TALL.0), classes.div_ceil(TALL.1), 1],
                [128, 1],
            ),
            (_, "plain") => ([rows.div_ceil(256), 1, 1], [256, 1]),
            _ => ([rows.div_ceil(TALL.0), 1, 1], [128, 1]),
        };
        let name = format!("projection_{verb}_{}_{technique}", self.dtype.name());
        gpu.launch(&name, grid, block, &args);
    }

    fn logits(&self, gpu: &Gpu, technique: &str) -> Table {
        let (rows, classes) = self.shape();
        let pitch = even(classes);
        let out = gpu.room(rows, classes, pitch);
        self.launch(gpu, "logits", technique, args![&out, NULL, pitch]);
        gpu.download(&out, rows, classes, pitch)
    }

    fn logits32(&self, gpu: &Gpu, technique: &str) -> Vec<f32> {
        let (rows, classes) = self.shape();
        let out = gpu.empty(rows * classes * 4);
        self.launch(gpu, "logits", technique, args![NULL, &out, classes]);
        let bytes = gpu.bytes(&out, rows * classes * 4);
        bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b))
            .collect()
    }

    fn argmax(&self, gpu: &Gpu, technique: &str) -> Vec<u32> {
        let out = gpu.empty(self.z.rows * 4);
        self.launch(gpu, "argmax", technique, args![&out]);
        let bytes = gpu.bytes(&out, self.z.rows * 4);
        bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|b| u32::from_le_bytes(*b))
            .collect()
    }

    fn softmax(&self, gpu: &Gpu, technique: &str, temperature: f64) -> Table {
        let (rows, classes) = self.shape();
        let pitch = even(classes);
        let out = gpu.room(rows, classes, pitch);
        self.launch(gpu, "softmax", technique, args![temperature, &out, pitch]);
        gpu.download(&out, rows, classes, pitch)
    }
}

fn first_of_greatest(row: &[f64]) -> u32 {
    let better = |best: usize, (j, x): (usize, &f64)| if *x > row[best] { j } else { best };
    row.iter().enumerate().fold(0, better) as u32
}

const SHAPES: [(usize, usize, usize); 6] = [
    (1, 1, 1),
    (127, 15, 15),
    (128, 16, 16),
    (129, 17, 17),
    (389, 53, 10),
    (40, 130, 53),
];

fn projection_holds() {
    let gpu = Gpu::new(&["projection"]);
    for (n, (rows, features, classes)) in SHAPES.into_iter().enumerate() {
        for (d, dtype) in Dtype::ALL.into_iter().enumerate() {
            let scores = Scores::random(rows, features, classes, dtype, (n + d) as u64);
            let what = format!("{dtype:?} {rows}x{features}x{classes}");
            let plain = scores.logits(&gpu, "plain");
            assert_eq!(scores.logits(&gpu, "fma"), plain, "{what}");
            for i in 0..rows {
                for j in 0..classes {
                    let (dot, roundings) = scores.dot(i, j);
                    dot.check(plain[(i, j)], roundings, format_args!("{what} ({i}, {j})"));
                }
            }
            let narrow: Vec<f32> = plain.data.iter().map(|&x| x as f32).collect();
            for technique in ["plain", "fma"] {
                assert_eq!(
                    scores.logits32(&gpu, technique),
                    narrow,
                    "{what} {technique}"
                );
                let classes: Vec<u32> =
                    (0..rows).map(|i| first_of_greatest(plain.row(i))).collect();
                assert_eq!(
                    scores.argmax(&gpu, technique),
                    classes,
                    "{what} {technique}"
                );
                check_softmax(&scores.softmax(&gpu, technique, 1.5), &plain, 1.5, &what);
            }
        }
    }
}

fn check_softmax(found: &Table, logits: &Table, temperature: f64, what: &str) {
    for i in 0..logits.rows {
        let row: Vec<f64> = logits.row(i).iter().map(|x| temperature * x).collect();
        let top = row.iter().fold(f64::NEG_INFINITY, |m, x| m.max(*x));
        let sum: f64 = row.iter().map(|x| (x - top).exp()).sum();
        for (j, x) in row.iter().enumerate() {
            let wanted = (x - top).exp() / sum;
            // x − top rounds once, and exp turns an absolute error into a relative one.
            let bound = wanted * U * (8.0 + row.len() as f64 + 2.0 * (x.abs() + top.abs()))
                + f64::MIN_POSITIVE;
            let error = (found[(i, j)] - wanted).abs();
            assert!(
                error <= bound,
                "{what} ({i}, {j}): off by {error:e} > {bound:e}"
            );
        }
    }
}

fn equal_scores_give_the_first_class() {
    let gpu = Gpu::new(&["projection"]);
    let mut scores = Scores::random(130, 20, 40, Dtype::F32, 1);
    for k in 0..scores.w.rows {
        for j in 0..40 {
            // Three equal columns in two tiles, above all others.
            scores.w[(k, j)] = if [13, 20, 39].contains(&j) {
                scores.z[(0, k)]
            } else {
                0.0
            };
        }
    }
    for technique in ["plain", "fma"] {
        let found = scores.argmax(&gpu, technique);
        assert_eq!(found[0], 13);
        assert!(
            found.iter().all(|class| [0, 13].contains(class)),
            "{found:?}"
        );
    }
}

fn kernel_matrix_holds() {
    let gpu = Gpu::new(&["projection"]);
    let shapes = [
        (1, 1, 1),
        (63, 65, 15),
        (64, 64, 16),
        (65, 63, 17),
        (197, 70, 53),
    ];
    for (n, (left, right, features)) in shapes.into_iter().enumerate() {
        for (d, dtype) in Dtype::ALL.into_iter().enumerate() {
            let (a, b) = (
                Table::random(left, features, dtype, n as u64),
                Table::random(right, features, dtype, 9 + n as u64),
            );
            // Aligned for one type, anything for another.
            let pitch = if d % 2 == 0 {
                features.next_multiple_of(8)
            } else {
                features
            };
            let bias = (n + d) % 2 == 0;
            let out_pitch = even(right);
            let mut plain = None;
            for technique in ["plain", "fma", "dmma"] {
                let (za, zb) = (gpu.upload(&a, dtype, pitch), gpu.upload(&b, dtype, pitch));
                let out = gpu.room(left, right, out_pitch);
                let (grid, block) = match technique {
                    "plain" => ([right.div_ceil(16), left.div_ceil(16), 1], [16, 16]),
                    _ => ([right.div_ceil(TILE), left.div_ceil(TILE), 1], [128, 1]),
                };
                let args = args![
                    &za, pitch, left, &zb, pitch, right, features, bias, &out, out_pitch
                ];
                let name = format!("projection_kernel_{}_{technique}", dtype.name());
                gpu.launch(&name, grid, block, args);
                let found = gpu.download(&out, left, right, out_pitch);
                for i in 0..left {
                    for j in 0..right {
                        let mut dot = Dot::of(a.row(i), b.row(j));
                        if bias {
                            dot.add(1.0, 1.0);
                        }
                        let what = format_args!("{name} {left}x{right}x{features} ({i}, {j})");
                        dot.check(found[(i, j)], features as f64 + 2.0, what);
                    }
                }
                match technique {
                    "plain" => plain = Some(found),
                    "fma" => assert_eq!(Some(found), plain, "{name}"),
                    _ => {}
                }
            }
        }
    }
}

fn random_features_hold() {
    let gpu = Gpu::new(&["rff"]);
    // The last: phases of a hundred thousand turns.
    let shapes = [
        (1, 1, 1, 1.0),
        (63, 15, 65, 1.0),
        (64, 16, 64, 10.0),
        (65, 17, 63, 1.0),
        (70, 53, 197, 1e5),
    ];
    for (n, (rows, inputs, count, scale)) in shapes.into_iter().enumerate() {
        for (x_type, z_type) in [
            (Dtype::F32, Dtype::F32),
            (Dtype::F32, Dtype::F64),
            (Dtype::F64, Dtype::F32),
            (Dtype::F64, Dtype::F64),
        ] {
            let x = Table::random(rows, inputs, x_type, n as u64);
            let mut omega = Table::random(inputs, count, Dtype::F64, 77 + n as u64);
            omega.data.iter_mut().for_each(|w| *w *= scale);
            let (pitch, omega_pitch, z_pitch) = (inputs + n, even(count), 2 * count + n % 2);
            let mut plain = None;
            for technique in ["plain", "fma", "dmma"] {
                let (xs, ws) = (
                    gpu.upload(&x, x_type, pitch),
                    gpu.upload(&omega, Dtype::F64, omega_pitch),
                );
                let bytes = if z_type == Dtype::F64 { 8 } else { 4 };
                let out = gpu.upload_bytes(&vec![0; rows * z_pitch * bytes]);
                let (grid, block) = match technique {
                    "plain" => ([count.div_ceil(16), rows.div_ceil(16), 1], [16, 16]),
                    _ => ([count.div_ceil(TILE), rows.div_ceil(TILE), 1], [128, 1]),
                };
                let name = format!(
                    "rff_features_{}_{}_{technique}",
                    x_type.name(),
                    z_type.name()
                );
                let args = args![
                    &xs,
                    pitch,
                    rows,
                    inputs,
                    &ws,
                    omega_pitch,
                    count,
                    &out,
                    z_pitch
                ];
                gpu.launch(&name, grid, block, args);
                let raw = gpu.bytes(&out, rows * z_pitch * bytes);
                let value = |i: usize, k: usize| match z_type {
                    Dtype::F64 => f64::from_le_bytes(raw.as_chunks().0[i * z_pitch + k]),
                    _ => f64::from(f32::from_le_bytes(raw.as_chunks().0[i * z_pitch + k])),
                };
                let features = Table::from_fn(rows, 2 * count, value);
                let columns = omega.transposed();
                for i in 0..rows {
                    for k in 0..count {
                        let dot = Dot::of(x.row(i), columns.row(k));
                        let (sine, cosine) = dot.value().sin_cos();
                        let size = (1.0 / count as f64).sqrt();
                        let narrow = if z_type == Dtype::F64 {
                            U
                        } else {
                            f64::from(f32::EPSILON) / 2.0
                        };
                        let bound =
                            size * ((inputs as f64 + 2.0) * U * dot.size + 4.0 * U + 1.01 * narrow);
                        for (found, wanted) in [
                            (features[(i, k)], size * cosine),
                            (features[(i, count + k)], size * sine),
                        ] {
                            let error = (found - wanted).abs();
                            assert!(
                                error <= bound,
                                "{name} {rows}x{inputs}x{count} ({i}, {k}): {found} for {wanted}, off by {error:e} > {bound:e}"
                            );
                        }
                    }
                }
                match technique {
                    "plain" => plain = Some(features),
                    "fma" => assert_eq!(Some(features), plain, "{name}"),
                    _ => {}
                }
            }
        }
    }
}

fn sine_and_cosine_are_right_to_two_units() {
    let gpu = Gpu::new(&["rff"]);
    // One input that is 1 leaves the phase unrounded, and 256 frequencies make the scale 1/16.
    let count = 256;
    let noise = Table::random(1, count, Dtype::F64, 4);
    let omega = Table::from_fn(1, count, |_, k| match k % 4 {
        0 => noise[(0, k)],
        // As near to a zero of either as f64 comes.
        1 => k as f64 * std::f64::consts::FRAC_PI_2,
        2 => (k * k * k) as f64 * std::f64::consts::FRAC_PI_2,
        _ => noise[(0, k)] * 10_f64.powi(k as i32 / 20),
    });
    let x = gpu.upload(&Table::from_fn(1, 1, |_, _| 1.0), Dtype::F64, 1);
    let frequencies = gpu.upload(&omega, Dtype::F64, count);
    let out = gpu.room(1, 2 * count, 2 * count);
    let args = args![
        &x,
        1_usize,
        1_usize,
        1_usize,
        &frequencies,
        count,
        count,
        &out,
        2 * count
    ];
    gpu.launch("rff_features_f64_f64_fma", [4, 1, 1], [128, 1], args);
    let found = gpu.download(&out, 1, 2 * count, 2 * count);
    for (k, phase) in omega.data.iter().enumerate() {
        let (sine, cosine) = phase.sin_cos();
        for (found, wanted) in [(found[(0, k)], cosine), (found[(0, count + k)], sine)] {
            let error = (16.0 * found - wanted).abs();
            let bound = 4.0 * U * wanted.abs();
            assert!(error <= bound, "of {phase:e}: {wanted:e}, off by {error:e}");
        }
    }
}
