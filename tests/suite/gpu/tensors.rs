//! Networks in burn's CUDA backend, and its tensors in our kernels.

use muso::engine::{CpuEngine, Engine, SumsSpec, Targets};
use muso::gram::{Gram, GramBuilder, Route};
use muso::models::burn::tensor::{Device, Tensor, TensorData};
use muso::models::{Architecture, Mode, NetworkConfig};

use super::device::engine;
use crate::support::gaussian;

/// burn's device, which is also the engine's.
fn device() -> Device {
    let ordinal = engine().context().ordinal();
    muso::gpu::compiler::prepare().unwrap();
    Device::cuda(ordinal)
}

fn images(count: usize, side: usize) -> Vec<f32> {
    gaussian(count, side * side, 5)
        .as_slice()
        .iter()
        .map(|&x| x as f32)
        .collect()
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, x| most.max(x.abs()))
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    muso::features::host(tensor)
}

/// Rounded to the ten bits of mantissa that tensor cores take of an f32, to nearest and ties away from zero.
fn tf32(value: f32) -> f32 {
    f32::from_bits((value.to_bits() + 0x1000) & !0x1FFF)
}

/// Two convolutions and two layers, straight from burn's operations; the operands of products are changed by `round`.
fn cnn(device: &Device, round: Option<fn(f32) -> f32>) -> Vec<f32> {
    use muso::models::burn::tensor::activation::relu;
    use muso::models::burn::tensor::module::{conv2d, max_pool2d};
    use muso::models::burn::tensor::ops::{ConvOptions, MaxPoolOptions};

    let drawn = |seed: u64, count: usize, scale: f64| -> Vec<f32> {
        let values = gaussian(1, count, seed);
        values
            .as_slice()
            .iter()
            .map(|&x| (scale * x) as f32)
            .collect()
    };
    let convolve = |x: Tensor<4>, seed: u64, [from, to]: [usize; 2]| {
        let scale = (2.0 / (9.0 * from as f64)).sqrt();
        let kernel = TensorData::new(drawn(seed, to * from * 9, scale), [to, from, 3, 3]);
        let bias = TensorData::new(drawn(seed + 1, to, 0.1), [to]);
        let (kernel, bias) = (
            Tensor::<4>::from_data(kernel, device),
            Tensor::<1>::from_data(bias, device),
        );
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        let x = relu(conv2d(x, kernel, Some(bias), options));
        max_pool2d(x, MaxPoolOptions::new([2, 2]))
    };
    let rounded = |x: Tensor<2>| match round {
        None => x,
        Some(round) => {
            let shape = x.dims();
            let rounded: Vec<f32> = values(x).into_iter().map(round).collect();
            Tensor::from_data(TensorData::new(rounded, shape), device)
        }
    };
    let layer = |x: Tensor<2>, seed: u64, to: usize| {
        let from = x.dims()[1];
        let weights = drawn(seed, from * to, (2.0 / from as f64).sqrt());
        let weights = Tensor::<2>::from_data(TensorData::new(weights, [from, to]), device);
        rounded(x).matmul(rounded(weights))
    };
    let images = TensorData::new(images(6, 16), [6, 1, 16, 16]);
    let x = convolve(Tensor::from_data(images, device), 11, [1, 4]);
    let x = convolve(x, 21, [4, 8]).flatten(1, 3);
    let x = relu(layer(x, 31, 48));
    values(layer(x, 41, 10))
}

/// How far two computations are apart, and how large the first is.
fn gap(here: &[f32], there: &[f32]) -> (f32, f32) {
    assert_eq!(here.len(), there.len());
    let gap: Vec<f32> = here.iter().zip(there).map(|(a, b)| a - b).collect();
    (largest(&gap), largest(here))
}

/// burn multiplies f32 matrices in TF32 where a device has tensor cores for it. Beside the processor's f32 that is three
/// digits; beside the processor with the operands rounded to TF32 it is what f32 sums in another order give.
#[test]
fn a_small_network_computes_what_it_computes_on_the_processor() {
    let there = cnn(&device(), None);
    let rounds = engine().context().properties().capability >= (8, 0);
    let same = cnn(&Device::flex(), rounds.then_some(tf32 as fn(f32) -> f32));
    let (apart, scale) = gap(&same, &there);
    assert!(scale > 0.5, "the comparison is of something: {scale}");
    assert!(apart <= 1e-4, "{apart} of {scale}");
    let (apart, scale) = gap(&cnn(&Device::flex(), None), &there);
    assert!(apart <= 4e-3 * scale, "{apart} of {scale}");
}

#[test]
fn our_network_passes_through() {
    let config = NetworkConfig::new(Architecture::SmallCnn, 10, [1, 16, 16]).with_width(4);
    let on = |device: &Device| {
        let network = config.init(3, device).unwrap();
        let data = TensorData::new(images(6, 16), [6, 1, 16, 16]);
        let images = Tensor::<4>::from_data(data, device);
        let features = network.features(images.clone(), Mode::Eval);
        let folded = network.folded().features(images);
        (
            values(features.clone()),
            values(network.head().forward(features)),
            values(folded),
        )
    };
    let (here, there) = (on(&Device::flex()), on(&device()));
    for (here, there) in [(here.0, there.0), (here.1, there.1), (here.2, there.2)] {
        let (apart, scale) = gap(&here, &there);
        assert!(scale > 0.1, "the comparison is of something: {scale}");
        assert!(apart <= 4e-3 * scale, "{apart} of {scale}");
    }
}

/// Sums of a tensor's rows in batches, by our kernels and on the processor.
#[test]
fn sums_of_tensors_are_those_of_their_values() {
    let cpu = CpuEngine::new(Some(2)).unwrap();
    let device = device();
    let (rows, cols) = (1300, 37);
    let z: Vec<f32> = gaussian(rows, cols, 8)
        .as_slice()
        .iter()
        .map(|&x| x as f32)
        .collect();
    let classes: Vec<i64> = (0..rows as i64).map(|i| i % 3).collect();
    let whole = Tensor::<2>::from_data(TensorData::new(z, [rows, cols]), &Device::flex());
    let sums = |targets: usize, batch: usize, on_gpu: bool| {
        let spec = SumsSpec {
            features: cols,
            bias: true,
            targets,
        };
        let mut total = Vec::new();
        macro_rules! with {
            ($engine:expr, $device:expr) => {{
                let mut gram = GramBuilder::new($engine, Route::Primal, spec).unwrap();
                for first in (0..rows).step_by(batch) {
                    let count = batch.min(rows - first);
                    let part = whole.clone().narrow(0, first, count).to_device($device);
                    let labels = &classes[first..first + count];
                    let labels = if targets > 0 {
                        Targets::Classes(labels)
                    } else {
                        Targets::None
                    };
                    // Where nobody else holds it, burn would give its memory to the next batch.
                    gram.update(&part, labels).unwrap();
                }
                let Gram::Primal(sums) = gram.finish().unwrap() else {
                    unreachable!()
                };
                assert_eq!(sums.rows, rows as u64);
                total.extend_from_slice(sums.gram.as_slice());
                total.extend_from_slice(sums.cross.as_slice());
            }};
        }
        if on_gpu {
            with!(engine(), &device);
        } else {
            with!(&cpu, &Device::flex());
        }
        total
    };
    for targets in [0, 3] {
        let expected = sums(targets, 300, false);
        let found = sums(targets, 1300, true);
        let scale = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        for (a, b) in expected.iter().zip(&found) {
            assert!((a - b).abs() <= 1e-12 * scale, "{a} {b}");
        }
        for batch in [100, 300, 511, 512, 513, 1024] {
            assert!(sums(targets, batch, true) == found, "batches of {batch}");
        }
    }
}

#[test]
fn tensors_are_rows() {
    crate::engine::check_tensors(engine(), &device());
}

#[test]
fn a_transposed_tensor_is_put_in_order() {
    let (rows, cols) = (40, 9);
    let z = Tensor::<2>::from_data(
        TensorData::new(images(cols, 8)[..rows * cols].to_vec(), [cols, rows]),
        &Device::flex(),
    );
    let weights = gaussian(cols + 1, 4, 3);
    let here = CpuEngine::ambient()
        .project_tensor(&z.clone().transpose(), &weights)
        .unwrap();
    let there = engine()
        .project_tensor(&z.to_device(&device()).transpose(), &weights)
        .unwrap();
    // The product is burn's to go on with.
    let (apart, scale) = gap(&values(here + 1.0), &values(there + 1.0));
    assert!(scale > 1.0 && apart <= 1e-6 * scale, "{apart} of {scale}");
}
