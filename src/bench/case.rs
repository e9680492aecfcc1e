//! A task with its arrays: what ours computes, who else does, and how far apart the two may be.

use std::borrow::Cow::{self, Borrowed, Owned};
use std::cell::RefCell;

use anyhow::Result;
use muso::engine::{CpuEngine, Dtype, Engine, Matrix, Rows};
use muso::features::RandomFeatures;
use muso::labels::leverage_scores;
use muso::solve::Eigen;
use serde_json::{Value, json};

use super::Operation;
use super::arrays::Array;
use super::inputs::{decaying_features, gaussian, gram, label_update};
#[cfg(feature = "nn")]
use super::network::{Prepared, floats, label};
use super::peers::{Faer, Local, Peer, Python};
use super::temporary::Temporary;
use super::work::Task;

/// The ridge λ of the label update.
const RIDGE: f64 = 1e-6;

/// An operation on one set of arrays.
pub(super) struct Case {
    task: Task,
    kept: Kept,
}

/// Our result; turning it into what is compared is not timed.
pub(super) enum Answer {
    Values(Matrix),
    Classes(Vec<u32>),
}

impl Answer {
    pub(super) fn into_matrix(self) -> Matrix {
        match self {
            Self::Values(values) => values,
            Self::Classes(classes) => column(classes.into_iter().map(f64::from).collect()),
        }
    }
}

/// The arrays that an operation is computed from.
enum Kept {
    Gram {
        z: Array,
    },
    Cholesky {
        a: Array,
        b: Array,
    },
    Projection {
        z: Array,
        w: Array,
    },
    Update {
        retained: Array,
        forgotten: Array,
        trained: Array,
        init: Array,
    },
    Random {
        inputs: Array,
        map: RandomFeatures,
    },
    Leverage {
        z: Array,
        eigen: Eigen,
    },
    #[cfg(feature = "nn")]
    Network {
        network: Box<Prepared>,
        training: bool,
    },
}

impl Case {
    /// Makes the arrays; the same each time.
    pub(super) fn new(engine: &CpuEngine, task: Task) -> Result<Self> {
        let f32_rows = |rows, cols, seed| Array::features(rows, cols, Dtype::F32, seed);
        let kept = match task {
            Task::Gram { rows, cols, dtype } => Kept::Gram {
                z: Array::features(rows, cols, dtype, 1),
            },
            Task::Cholesky { order, classes } => {
                let z = f32_rows(order + order / 2, order, 2);
                let mut a = gram(engine, z.rows(), false)?.gram;
                for i in 0..order {
                    a[(i, i)] += 1.0;
                }
                Kept::Cholesky {
                    a: Array::F64(a),
                    b: Array::F64(gaussian(order, classes, 3)),
                }
            }
            Task::Projection {
                rows,
                cols,
                classes,
            } => Kept::Projection {
                z: f32_rows(rows, cols, 4),
                w: Array::F64(gaussian(cols, classes, 5)),
            },
            // Columns down to 1e-5: in the last ones a ridge of 1e-6 is about as large as the data.
            Task::Update {
                retained,
                forgotten,
                cols,
                classes,
            } => Kept::Update {
                retained: Array::F32(cols, decaying_features(retained, cols, 1e-5, 6)),
                forgotten: Array::F32(cols, decaying_features(forgotten, cols, 1e-2, 7)),
                trained: Array::F64(gaussian(cols + 1, classes, 8)),
                init: Array::F64(gaussian(cols + 1, classes, 9)),
            },
            Task::Random {
                rows,
                inputs,
                frequencies,
            } => Kept::Random {
                inputs: Array::F64(gaussian(rows, inputs, 10)),
                map: RandomFeatures::new(inputs, frequencies, (inputs as f64).sqrt(), 11)?,
            },
            Task::Leverage { rows, cols } => {
                let z = f32_rows(rows, cols, 12);
                let eigen = Eigen::new(&gram(engine, z.rows(), false)?.gram)?;
                Kept::Leverage { z, eigen }
            }
            #[cfg(feature = "nn")]
            Task::Network {
                architecture,
                images,
                training,
                ..
            } => Kept::Network {
                network: Box::new(prepared(architecture, images)?),
                training,
            },
        };
        Ok(Self { task, kept })
    }

    /// Returns the rows of which the sums are taken.
    ///
    /// # Panics
    /// If the operation is another.
    pub(super) fn features(&self) -> Rows<'_> {
        match &self.kept {
            Kept::Gram { z } => z.rows(),
            _ => panic!("sums were expected"),
        }
    }

    /// Computes our result on `engine`.
    pub(super) fn ours(&self, engine: &CpuEngine) -> Result<Answer> {
        Ok(Answer::Values(match &self.kept {
            Kept::Gram { z } => gram(engine, z.rows(), false)?.gram,
            Kept::Cholesky { a, b } => {
                let factor = engine.factor(a.matrix(), 0.0)?;
                engine.solve(&factor, b.matrix())?
            }
            Kept::Projection { z, w } => {
                let best = engine.project_argmax(z.rows(), w.matrix())?;
                return Ok(Answer::Classes(best));
            }
            Kept::Update {
                retained,
                forgotten,
                trained,
                init,
            } => label_update(
                engine,
                retained.rows(),
                forgotten.rows(),
                trained.matrix(),
                init.matrix(),
                RIDGE,
            )?,
            Kept::Random { inputs, map } => map.apply(engine, inputs.matrix())?,
            Kept::Leverage { z, eigen } => column(leverage_scores(engine, eigen, z.rows(), None)?),
            #[cfg(feature = "nn")]
            Kept::Network { network, training } => match training {
                true => first(network.training()),
                false => widened(network.extraction()),
            },
        }))
    }

    /// Returns the peers that run in this process.
    pub(super) fn local_peers<'a>(
        &'a self,
        engine: &'a CpuEngine,
        faer: &'a Faer,
    ) -> Vec<Box<dyn Peer + 'a>> {
        match &self.kept {
            // Narrow rows are held against our own f32.
            Kept::Gram { z } if self.is_narrow() => {
                let wide = z.widened();
                let run = move || Ok(gram(engine, wide.rows(), false)?.gram);
                vec![Box::new(Local::new("ours f32", run))]
            }
            Kept::Gram { z } => {
                let wide = z.rows().to_matrix();
                let run = move || Ok(faer.gram(&wide));
                vec![Box::new(Local::new("faer f64", run))]
            }
            Kept::Cholesky { a, b } => {
                let run = move || faer.solve(a.matrix(), b.matrix());
                vec![Box::new(Local::new("faer", run))]
            }
            #[cfg(feature = "nn")]
            Kept::Network { network, training } => {
                let run = move || {
                    Ok(match training {
                        true => first(network.burn_training()),
                        false => widened(network.burn_extraction()),
                    })
                };
                vec![Box::new(Local::new("burn", run))]
            }
            _ => Vec::new(),
        }
    }

    /// Hands the arrays to Python and returns the peers that run there.
    pub(super) fn python_peers<'a>(
        &self,
        python: &'a RefCell<Python>,
        folder: &Temporary,
        wanted: &Matrix,
    ) -> Result<Vec<Box<dyn Peer + 'a>>> {
        if self.is_narrow() {
            return Ok(Vec::new());
        }
        let arrays = self.handed_over();
        let shape = (wanted.rows(), wanted.cols());
        Python::load(
            python,
            folder,
            self.kind(),
            &self.parameter(),
            &arrays,
            shape,
        )
    }

    fn is_narrow(&self) -> bool {
        matches!(self.kept, Kept::Gram { ref z } if matches!(z, Array::F16(..) | Array::Bf16(..)))
    }

    /// Returns the name that the Python script has for the operation.
    fn kind(&self) -> &'static str {
        match &self.kept {
            #[cfg(feature = "nn")]
            Kept::Network { training: true, .. } => "training",
            #[cfg(feature = "nn")]
            Kept::Network { .. } => "extraction",
            _ => self.task.kind().name(),
        }
    }

    /// Returns what a peer must know beyond the arrays.
    fn parameter(&self) -> Value {
        match &self.kept {
            #[cfg(feature = "nn")]
            Kept::Network { network, .. } => json!({
                "architecture": network.config.architecture.name(),
                "classes": network.config.classes,
                "image": network.config.image,
            }),
            _ => json!(RIDGE),
        }
    }

    /// Returns the arrays for a peer: for the update, features with their column of ones.
    fn handed_over(&self) -> Vec<(&'static str, Cow<'_, Array>)> {
        match &self.kept {
            Kept::Gram { z } => vec![("z", Borrowed(z))],
            Kept::Cholesky { a, b } => vec![("a", Borrowed(a)), ("b", Borrowed(b))],
            Kept::Projection { z, w } => vec![("z", Borrowed(z)), ("w", Borrowed(w))],
            Kept::Update {
                retained,
                forgotten,
                trained,
                init,
            } => vec![
                ("retained", Owned(retained.with_ones())),
                ("forgotten", Owned(forgotten.with_ones())),
                ("trained", Borrowed(trained)),
                ("init", Borrowed(init)),
            ],
            Kept::Random { inputs, map } => vec![
                ("inputs", Borrowed(inputs)),
                ("frequencies", Owned(Array::F64(map.frequencies().clone()))),
            ],
            Kept::Leverage { z, eigen } => vec![
                ("z", Borrowed(z)),
                ("vectors", Owned(Array::F64(eigen.vectors.clone()))),
                ("values", Owned(Array::F64(column(eigen.values.clone())))),
            ],
            #[cfg(feature = "nn")]
            Kept::Network { network, .. } => {
                let count = network.images.dims()[0];
                let images = floats(network.images.clone());
                // All tensors end to end.
                let state = network.network.state();
                let weights: Vec<f32> = state.iter().flat_map(|t| t.values.clone()).collect();
                let labels: Vec<f32> = (0..count).map(|i| label(i) as f32).collect();
                vec![
                    ("images", Owned(Array::F32(images.len() / count, images))),
                    ("weights", Owned(Array::F32(weights.len(), weights))),
                    ("labels", Owned(Array::F32(count, labels))),
                ]
            }
        }
    }

    /// The largest difference from ours that is rounding; nothing where the variant is known to be wrong.
    pub(super) fn tolerance(&self, variant: &str) -> Option<f64> {
        match (&self.kept, variant) {
            // The same products and sums in the same order.
            (_, "ours f32") => Some(0.0),
            // Its Woodbury form has (λI)⁻¹ where I belongs; what it gives is not the projector.
            (_, variant) if variant.contains("authors") => None,
            // It subtracts numbers of size ‖G‖/λ that nearly cancel.
            (_, variant) if variant.contains("woodbury") => Some(1e-2),
            (Kept::Gram { .. }, variant) if variant.contains("f32") => Some(1e-4),
            (Kept::Gram { .. }, _) => Some(1e-12),
            (Kept::Cholesky { .. }, _) => Some(1e-9),
            // Rows whose two best classes are equal but for rounding.
            (Kept::Projection { .. }, variant) if variant.contains("f32") => Some(1e-3),
            (Kept::Projection { .. }, _) => Some(0.0),
            (Kept::Update { .. }, _) => Some(1e-5),
            (Kept::Random { .. } | Kept::Leverage { .. }, _) => Some(1e-10),
            // A ReLU whose input is within rounding of zero falls to either side, and the gradient follows.
            #[cfg(feature = "nn")]
            (Kept::Network { training, .. }, _) => Some(if *training { 5e-2 } else { 1e-4 }),
        }
    }

    /// Largest difference from ours over the largest entry; of classes, the share that differs.
    pub(super) fn difference(&self, ours: &Matrix, theirs: &Matrix) -> f64 {
        match self.task.kind() {
            Operation::Projection => {
                let pairs = ours.as_slice().iter().zip(theirs.as_slice());
                pairs.filter(|(a, b)| a != b).count() as f64 / ours.rows() as f64
            }
            // `dsyrk` and faer leave the upper triangle alone.
            Operation::Gram => largest_gap(ours, theirs, |i| i + 1),
            _ => largest_gap(ours, theirs, |_| ours.cols()),
        }
    }
}

/// Draws a network and a batch, on the processor.
#[cfg(feature = "nn")]
fn prepared(architecture: muso_models::Architecture, images: usize) -> muso::Result<Prepared> {
    use muso_models::burn::tensor::Device;
    Ok(Prepared::new(architecture, images, &Device::flex())?)
}

/// Returns rows in f64.
#[cfg(feature = "nn")]
fn widened(rows: muso_models::burn::tensor::Tensor<2>) -> Matrix {
    let [count, width] = rows.dims();
    let values = floats(rows).into_iter().map(f64::from);
    Matrix::from_vec(count, width, values.collect())
}

/// Returns the gradient of the first convolution, as one row.
#[cfg(feature = "nn")]
fn first(gradients: Vec<muso_models::burn::tensor::Tensor<1>>) -> Matrix {
    let first = gradients.into_iter().next();
    widened(first.expect("a network has weights").unsqueeze())
}

/// Makes a matrix of one column.
fn column(values: Vec<f64>) -> Matrix {
    Matrix::from_vec(values.len(), 1, values)
}

/// Compares the first `columns(i)` entries of each row i.
fn largest_gap(ours: &Matrix, theirs: &Matrix, columns: impl Fn(usize) -> usize) -> f64 {
    let (mut largest, mut scale) = (0.0_f64, f64::MIN_POSITIVE);
    for i in 0..ours.rows() {
        for (a, b) in ours.row(i)[..columns(i)].iter().zip(theirs.row(i)) {
            let gap = (a - b).abs();
            // NaN counts as the largest difference there is.
            largest = if gap.is_nan() {
                f64::INFINITY
            } else {
                largest.max(gap)
            };
            scale = scale.max(a.abs());
        }
    }
    largest / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_seen_where_the_peer_fills_it_in() {
        let ours = Matrix::from_vec(2, 2, vec![1.0, 2.0, 2.0, 4.0]);
        let theirs = Matrix::from_vec(2, 2, vec![1.0, 0.0, 2.0, 3.0]);
        assert_eq!(largest_gap(&ours, &theirs, |i| i + 1), 0.25);
        assert_eq!(largest_gap(&ours, &theirs, |_| 2), 0.5);
        let theirs = Matrix::from_vec(2, 2, vec![f64::NAN; 4]);
        assert_eq!(largest_gap(&ours, &theirs, |_| 2), f64::INFINITY);
    }

    #[cfg(feature = "nn")]
    #[test]
    fn burn_agrees_with_our_networks() {
        use muso_models::Architecture;
        let engine = CpuEngine::new(Some(1)).unwrap();
        let faer = Faer::new(1).unwrap();
        for architecture in [Architecture::SmallCnn, Architecture::ResNet20] {
            for training in [false, true] {
                let task = Task::Network {
                    architecture,
                    images: 4,
                    multiplications: 1.0,
                    training,
                };
                let case = Case::new(&engine, task).unwrap();
                let wanted = case.ours(&engine).unwrap().into_matrix();
                let mut peers = case.local_peers(&engine, &faer);
                assert_eq!((peers.len(), peers[0].name()), (1, "burn"));
                let (found, _) = peers[0].check().unwrap();
                let difference = case.difference(&wanted, &found);
                let allowed = case.tolerance("burn").unwrap();
                assert!(difference <= allowed, "{task:?}: {difference}");
            }
        }
    }

    #[test]
    fn faer_and_narrow_rows_agree_with_ours() {
        let engine = CpuEngine::new(Some(2)).unwrap();
        let faer = Faer::new(2).unwrap();
        let gram = |dtype| Task::Gram {
            rows: 301,
            cols: 67,
            dtype,
        };
        let cholesky = Task::Cholesky {
            order: 131,
            classes: 7,
        };
        for task in [
            gram(Dtype::F32),
            gram(Dtype::F16),
            gram(Dtype::Bf16),
            cholesky,
        ] {
            let case = Case::new(&engine, task).unwrap();
            let wanted = case.ours(&engine).unwrap().into_matrix();
            let mut peers = case.local_peers(&engine, &faer);
            assert_eq!(peers.len(), 1, "{task:?}");
            let (found, _) = peers[0].check().unwrap();
            let allowed = case.tolerance(peers[0].name()).unwrap();
            let difference = case.difference(&wanted, &found);
            assert!(difference <= allowed, "{task:?}: {difference}");
        }
    }
}
