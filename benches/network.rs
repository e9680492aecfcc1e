//! Feature extraction and a step of training (forward, backward, SGD) of networks in f32.
//!
//! Both are validated against burn's own convolutions and autodiff, and the small network against a forward pass in f64:
//! its features directly, and its gradient by the difference of the loss along it.

mod common;

use std::cell::LazyCell;

use criterion::{Criterion, criterion_group, criterion_main};
use muso::engine::Matrix;
use muso::models::burn::tensor::{Device, Tensor};
use muso::models::{Architecture, Network, params};

use common::network::{Prepared, floats, label};
use common::{operations, size, validate, widened};

/// Architecture, images of a batch and multiply-adds of an image.
const NETWORKS: [(Architecture, usize, f64); 3] = [
    (Architecture::SmallCnn, 64, 1.217e6),
    (Architecture::ResNet20, 128, 40.55e6),
    (Architecture::ResNet18, 64, 555.4e6),
];

/// Of f32 features through at most 20 layers.
const FEATURES: f64 = 1e-5;
/// A ReLU whose input is within rounding of zero falls to either side, and the gradient follows.
const GRADIENTS: f64 = 5e-2;
/// Of a difference of losses over a short step, which a few ReLUs change sides in.
const SLOPE: f64 = 1e-2;

fn benches(c: &mut Criterion) {
    for (device_name, device) in &devices() {
        for (architecture, images, multiplications) in NETWORKS {
            let images = size(images, 4);
            // The largest takes a minute to see that it works.
            if common::is_test() && architecture == Architecture::ResNet18 {
                continue;
            }
            let case = LazyCell::new(|| {
                let prepared = Prepared::new(architecture, images, device).expect("a network");
                check(&prepared);
                prepared
            });
            let name = format!("{device_name} {architecture}, {images} images");
            let forward = 2.0 * multiplications * images as f64;
            let mut group = c.benchmark_group("network_features");
            group.throughput(operations(forward));
            group.bench_function(&name, |b| b.iter(|| floats(case.extraction())));
            group.finish();
            // Backward is two products for each of forward's.
            let mut group = c.benchmark_group("network_training");
            group.throughput(operations(3.0 * forward));
            group.bench_function(&name, |b| {
                // The first gradient on the host: nothing is left in a queue.
                b.iter(|| floats(case.training().swap_remove(0)));
            });
            group.finish();
        }
    }
}

/// The devices that the engines are on.
fn devices() -> Vec<(&'static str, Device)> {
    let engines = common::engines().into_iter();
    let place = |(name, engine)| {
        let scheduler = muso::scheduler::Scheduler::in_place();
        let place = muso::pipeline::networks::Workplace::new(engine, scheduler);
        match place {
            Ok(place) => Some((name, place.device)),
            Err(why) => {
                println!("{name}: {why}");
                None
            }
        }
    };
    engines.filter_map(place).collect()
}

fn matrix(rows: Tensor<2>) -> Matrix {
    let cols = rows.dims()[1];
    widened(&floats(rows), cols)
}

/// Every value of every gradient, in one row.
fn flat(gradients: Vec<Tensor<1>>) -> Matrix {
    let values: Vec<f32> = gradients.into_iter().flat_map(floats).collect();
    widened(&values, values.len())
}

fn check(case: &Prepared) {
    let found = matrix(case.extraction());
    let wanted = matrix(case.burn_extraction());
    validate("features, burn for", &found, &wanted, FEATURES);
    let found = flat(case.training());
    let wanted = flat(case.burn_training());
    validate("gradient, burn for", &found, &wanted, GRADIENTS);
    if case.config.architecture == Architecture::SmallCnn {
        check_small(case);
    }
}

/// The small network against f64.
fn check_small(case: &Prepared) {
    let features = matrix(case.extraction());
    let images: Vec<f64> = floats(case.images.clone())
        .into_iter()
        .map(f64::from)
        .collect();
    let reference = SmallCnn::new(&case.network);
    let wanted = reference.features(&images);
    validate("features", &features, &wanted, FEATURES);

    let gradient = case.training();
    let direction = flat(gradient.clone());
    let weights = params::weights(&case.network);
    let step = 1e-3 / direction.norm();
    let moved = |sign: f64| {
        let weights = weights.iter().cloned().zip(gradient.iter().cloned());
        let weights: Vec<_> = weights.map(|(w, g)| w + g * (sign * step)).collect();
        let network = params::with_weights(case.network.clone(), weights.clone());
        (SmallCnn::new(&network).loss(&images), flat(weights))
    };
    let ((above, up), (below, down)) = (moved(1.0), moved(-1.0));
    // With the weights as f32 rounded them.
    let along = up.zip(&down, |a, b| a - b).zip(&direction, |d, g| d * g);
    let predicted: f64 = along.as_slice().iter().sum();
    let off = ((above - below) / predicted - 1.0).abs();
    let is_close = off <= SLOPE;
    assert!(
        is_close,
        "the loss falls by {off:e} less or more than its gradient says"
    );
}

/// The small network without batch normalisation, in f64 and one loop at a time.
struct SmallCnn(muso::models::StateDict);

impl SmallCnn {
    fn new(network: &Network) -> Self {
        Self(network.state())
    }

    fn values(&self, name: &str) -> (&[usize], &[f32]) {
        let tensor = self.0.get(name).expect("a tensor of the small network");
        (&tensor.shape, &tensor.values)
    }

    /// A 3×3 convolution with a border of zeros, ReLU, and the largest of each 2×2.
    fn layer(&self, name: &str, x: &[f64], side: usize) -> Vec<f64> {
        let (shape, kernel) = self.values(&format!("{name}.weight"));
        let (_, bias) = self.values(&format!("{name}.bias"));
        let (outputs, inputs) = (shape[0], shape[1]);
        let at = |c: usize, i: isize, j: isize| {
            let range = 0..side as isize;
            let inside = range.contains(&i) && range.contains(&j);
            if inside {
                x[(c * side + i as usize) * side + j as usize]
            } else {
                0.0
            }
        };
        let half = side / 2;
        let mut out = vec![0.0_f64; outputs * half * half];
        for o in 0..outputs {
            for i in 0..side as isize {
                for j in 0..side as isize {
                    let mut sum = f64::from(bias[o]);
                    for c in 0..inputs {
                        for (k, &w) in kernel[(o * inputs + c) * 9..][..9].iter().enumerate() {
                            let (di, dj) = (k as isize / 3 - 1, k as isize % 3 - 1);
                            sum += f64::from(w) * at(c, i + di, j + dj);
                        }
                    }
                    let place = (o * half + i as usize / 2) * half + j as usize / 2;
                    out[place] = out[place].max(sum);
                }
            }
        }
        out
    }

    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let (_, weight) = self.values(&format!("{name}.weight"));
        let (_, bias) = self.values(&format!("{name}.bias"));
        let rows = weight.chunks_exact(x.len()).zip(bias);
        let dot = |w: &[f32]| -> f64 { w.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum() };
        rows.map(|(w, &b)| dot(w) + f64::from(b)).collect()
    }

    fn image_features(&self, image: &[f64]) -> Vec<f64> {
        let x = self.layer("conv1", image, 28);
        let x = self.layer("conv2", &x, 14);
        self.linear("fc1", &x)
            .into_iter()
            .map(|x| x.max(0.0))
            .collect()
    }

    fn features(&self, images: &[f64]) -> Matrix {
        let rows: Vec<Vec<f64>> = images
            .chunks_exact(784)
            .map(|x| self.image_features(x))
            .collect();
        Matrix::from_vec(rows.len(), rows[0].len(), rows.concat())
    }

    /// The mean cross-entropy.
    fn loss(&self, images: &[f64]) -> f64 {
        let images = images.chunks_exact(784);
        let count = images.len() as f64;
        let each = images.enumerate().map(|(i, image)| {
            let logits = self.linear("fc2", &self.image_features(image));
            let sum: f64 = logits.iter().map(|x| x.exp()).sum();
            sum.ln() - logits[label(i)]
        });
        each.sum::<f64>() / count
    }
}

criterion_group! { name = all; config = common::criterion(); targets = benches }
criterion_main!(all);
