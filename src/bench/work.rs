//! What can be measured at which sizes, and what each cannot do without.
//!
//! Operations count a multiply-add as two. Bytes are those of every input read once and of every output written once.

use muso::engine::Dtype;

use super::Operation;

/// Operations and bytes that an operation cannot do without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Work {
    /// Number of floating-point operations.
    pub(crate) flops: f64,
    /// Bytes to and from memory.
    pub(crate) bytes: f64,
}

/// An operation at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Task {
    /// G = ZᵀZ in f64.
    Gram {
        /// Number of rows, N.
        rows: usize,
        /// Number of columns, D.
        cols: usize,
        /// Type of the values of the rows.
        dtype: Dtype,
    },
    /// Factor and solve, f64.
    Cholesky {
        /// Number of columns, D.
        order: usize,
        /// Number of right-hand sides.
        classes: usize,
    },
    /// argmax of Z W for f32 rows.
    Projection {
        /// Number of rows, N.
        rows: usize,
        /// Number of columns, D.
        cols: usize,
        /// Number of classes, C.
        classes: usize,
    },
    /// Labels of forgotten rows from retained ones, f32 rows and a bias.
    Update {
        /// Number of retained rows, N_s.
        retained: usize,
        /// Number of forgotten rows, N_u.
        forgotten: usize,
        /// D without the bias.
        cols: usize,
        /// Number of classes, C.
        classes: usize,
    },
    /// Random Fourier features of f64 inputs.
    Random {
        /// Number of rows, N.
        rows: usize,
        /// Columns of the inputs.
        inputs: usize,
        /// Number of frequencies, m.
        frequencies: usize,
    },
    /// Leverage scores of f32 rows over all directions, G's eigenvectors being given.
    Leverage {
        /// Number of rows, N.
        rows: usize,
        /// Number of columns, D.
        cols: usize,
    },
    /// Features of images, or a step of training, f32.
    #[cfg(feature = "nn")]
    Network {
        /// Architecture of the network.
        architecture: muso_models::Architecture,
        /// Images of a batch.
        images: usize,
        /// Multiply-adds of one image.
        multiplications: f64,
        /// A step of training in place of features.
        training: bool,
    },
}

fn doubles(values: usize) -> f64 {
    (values * size_of::<f64>()) as f64
}

fn singles(values: usize) -> f64 {
    (values * size_of::<f32>()) as f64
}

/// D³/3 for the factor and 2·D²·C for the solve.
fn factor_and_solve(order: usize, classes: usize) -> f64 {
    let d = order as f64;
    d * d * d / 3.0 + 2.0 * d * d * classes as f64
}

impl Task {
    /// Returns the operation that this is a size of.
    pub(crate) fn kind(&self) -> Operation {
        match self {
            Self::Gram { .. } => Operation::Gram,
            Self::Cholesky { .. } => Operation::Cholesky,
            Self::Projection { .. } => Operation::Projection,
            Self::Update { .. } => Operation::Update,
            Self::Random { .. } => Operation::Random,
            Self::Leverage { .. } => Operation::Leverage,
            #[cfg(feature = "nn")]
            Self::Network { .. } => Operation::Networks,
        }
    }

    /// Names the operation in a word or two; with [`Self::shape`] it names a measurement.
    pub(crate) fn operation(&self) -> String {
        match self {
            #[cfg(feature = "nn")]
            Self::Network { training: true, .. } => "training step".into(),
            #[cfg(feature = "nn")]
            Self::Network { .. } => "network features".into(),
            _ => self.kind().name().into(),
        }
    }

    /// Describes the sizes in a few words.
    pub(crate) fn shape(&self) -> String {
        match *self {
            Self::Gram { rows, cols, dtype } => {
                format!("N = {rows}, D = {cols}, {} rows", dtype.name())
            }
            Self::Cholesky { order, classes } => {
                format!("D = {order}, C = {classes}, factor and solve")
            }
            Self::Projection {
                rows,
                cols,
                classes,
            } => format!("N = {rows}, D = {cols}, C = {classes}, f32 rows, with argmax"),
            Self::Update {
                retained,
                forgotten,
                cols,
                classes,
            } => format!(
                "N_s = {retained}, D = {cols} + bias, C = {classes}, N_u = {forgotten}, f32 rows"
            ),
            Self::Random {
                rows,
                inputs,
                frequencies,
            } => format!("N = {rows}, {inputs} inputs, {frequencies} frequencies"),
            Self::Leverage { rows, cols } => {
                format!("N = {rows}, D = {cols}, f32 rows, all directions")
            }
            #[cfg(feature = "nn")]
            Self::Network {
                architecture,
                images,
                ..
            } => format!("{architecture}, {images} images, f32"),
        }
    }

    /// Counts the operations and bytes that it cannot do without.
    pub(crate) fn work(&self) -> Work {
        let (flops, bytes) = match *self {
            // One triangle.
            Self::Gram { rows, cols, dtype } => (
                rows as f64 * (cols * cols) as f64,
                (rows * cols * dtype.size()) as f64 + doubles(cols * cols),
            ),
            Self::Cholesky { order, classes } => (
                factor_and_solve(order, classes),
                doubles(order * order + 2 * order * classes),
            ),
            Self::Projection {
                rows,
                cols,
                classes,
            } => (
                2.0 * rows as f64 * (cols * classes) as f64,
                singles(rows * cols + rows) + doubles(cols * classes),
            ),
            Self::Update {
                retained,
                forgotten,
                cols,
                classes,
            } => {
                let order = cols + 1;
                (
                    retained as f64 * (order * order) as f64
                        + factor_and_solve(order, classes)
                        + 2.0 * forgotten as f64 * (order * classes) as f64,
                    singles((retained + forgotten) * cols)
                        + doubles(2 * order * classes + forgotten * classes),
                )
            }
            // The product alone: what a cosine costs is nobody's constant.
            Self::Random {
                rows,
                inputs,
                frequencies,
            } => (
                2.0 * rows as f64 * (inputs * frequencies) as f64,
                doubles(rows * inputs + inputs * frequencies + 2 * rows * frequencies),
            ),
            Self::Leverage { rows, cols } => (
                2.0 * rows as f64 * (cols * cols) as f64,
                singles(rows * cols) + doubles(cols * cols + rows),
            ),
            #[cfg(feature = "nn")]
            Self::Network {
                images,
                multiplications,
                training,
                ..
            } => {
                let passes = if training { 3.0 } else { 1.0 };
                (2.0 * passes * multiplications * images as f64, 0.0)
            }
        };
        Work { flops, bytes }
    }

    /// Returns how many of its operations fit where one in f64 does.
    pub(super) fn lanes(&self) -> f64 {
        match self {
            #[cfg(feature = "nn")]
            Self::Network { .. } => 2.0,
            // Classes are screened in f32.
            Self::Projection { .. } => 2.0,
            _ => 1.0,
        }
    }
}

/// Returns the sizes at which an operation is measured, none where it has a way of its own; `memory` is what may be used,
/// in bytes.
pub(crate) fn tasks(operation: Operation, quick: bool, memory: Option<u64>) -> Vec<Task> {
    let size = |full: usize, reduced: usize| if quick { reduced } else { full };
    match operation {
        Operation::Gram => {
            let mut shapes = vec![
                (size(80_000, 2_000), 128, Dtype::F32),
                (size(20_000, 2_000), size(512, 256), Dtype::F32),
                (size(20_000, 2_000), size(512, 256), Dtype::F16),
                (size(20_000, 2_000), size(512, 256), Dtype::Bf16),
            ];
            if !quick {
                shapes.push((8_000, 2_048, Dtype::F32));
            }
            let task = |(rows, cols, dtype)| Task::Gram { rows, cols, dtype };
            shapes.into_iter().map(task).collect()
        }
        Operation::Cholesky => [size(512, 128), size(2_048, 512)]
            .map(|order| Task::Cholesky {
                order,
                classes: 100,
            })
            .to_vec(),
        Operation::Projection => [
            (size(projected_rows(memory), 5_000), 10),
            (size(100_000, 2_000), 100),
        ]
        .map(|(rows, classes)| Task::Projection {
            rows,
            cols: 512,
            classes,
        })
        .to_vec(),
        Operation::Update => vec![Task::Update {
            retained: size(4_000, 600),
            forgotten: size(400, 60),
            cols: size(512, 128),
            classes: 100,
        }],
        Operation::Random => vec![Task::Random {
            rows: size(20_000, 1_000),
            inputs: size(784, 196),
            frequencies: size(1_000, 200),
        }],
        Operation::Leverage => vec![Task::Leverage {
            rows: size(20_000, 2_000),
            cols: size(512, 128),
        }],
        #[cfg(feature = "nn")]
        Operation::Networks => networks(quick),
        _ => Vec::new(),
    }
}

/// A million rows where memory is free for them and for a peer's copies in f64; fewer where it is not.
pub(super) fn projected_rows(memory: Option<u64>) -> usize {
    const FULL: usize = 1_000_000;
    /// Memory for a million rows of 512 columns: f32 in both processes, a copy in f64, and another for conversion.
    const NEEDED: u64 = 16_000_000_000;
    let tenths = memory.map_or(10, |free| (10 * free / NEEDED).clamp(1, 10));
    FULL / 10 * tenths as usize
}

#[cfg(feature = "nn")]
fn networks(quick: bool) -> Vec<Task> {
    use muso_models::Architecture;
    /// Architecture, images of a batch and multiply-adds of an image.
    const NETWORKS: [(Architecture, usize, f64); 3] = [
        (Architecture::SmallCnn, 64, 1.217e6),
        (Architecture::ResNet20, 128, 40.55e6),
        (Architecture::ResNet18, 64, 555.4e6),
    ];
    let measured = if quick { &NETWORKS[..2] } else { &NETWORKS[..] };
    let both = |&(architecture, images, multiplications): &(Architecture, usize, f64)| {
        [false, true].map(|training| Task::Network {
            architecture,
            images: if quick { images / 16 } else { images },
            multiplications,
            training,
        })
    };
    measured.iter().flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_what_the_formulas_say() {
        let gram = |dtype| Task::Gram {
            rows: 10,
            cols: 4,
            dtype,
        };
        let cases = [
            (gram(Dtype::F32), 160.0, 160.0 + 128.0),
            (gram(Dtype::F16), 160.0, 80.0 + 128.0),
            (
                Task::Cholesky {
                    order: 3,
                    classes: 2,
                },
                9.0 + 36.0,
                8.0 * (9.0 + 12.0),
            ),
            (
                Task::Projection {
                    rows: 10,
                    cols: 4,
                    classes: 3,
                },
                240.0,
                4.0 * 50.0 + 8.0 * 12.0,
            ),
            (
                Task::Update {
                    retained: 10,
                    forgotten: 2,
                    cols: 2,
                    classes: 4,
                },
                90.0 + 9.0 + 72.0 + 48.0,
                4.0 * 24.0 + 8.0 * (24.0 + 8.0),
            ),
            (
                Task::Random {
                    rows: 5,
                    inputs: 3,
                    frequencies: 2,
                },
                60.0,
                8.0 * (15.0 + 6.0 + 20.0),
            ),
            (
                Task::Leverage { rows: 5, cols: 3 },
                90.0,
                4.0 * 15.0 + 8.0 * (9.0 + 5.0),
            ),
        ];
        for (task, flops, bytes) in cases {
            assert_eq!(task.work(), Work { flops, bytes }, "{task:?}");
        }
    }

    #[test]
    fn every_task_has_a_name_of_its_own() {
        for quick in [false, true] {
            let all = Operation::ALL.into_iter();
            let names: Vec<_> = all
                .flat_map(|operation| tasks(operation, quick, None))
                .map(|task| (task.operation(), task.shape()))
                .collect();
            let distinct: std::collections::BTreeSet<_> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "{names:?}");
        }
    }

    #[test]
    fn little_memory_means_fewer_rows() {
        assert_eq!(projected_rows(None), 1_000_000);
        assert_eq!(projected_rows(Some(64 << 30)), 1_000_000);
        assert_eq!(projected_rows(Some(8_000_000_000)), 500_000);
        assert_eq!(projected_rows(Some(0)), 100_000);
    }
}
