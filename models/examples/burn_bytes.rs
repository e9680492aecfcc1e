//! Says whether burn's own convolutions on the processor give the same bytes for any batch size and number of threads,
//! beside the direct convolutions of this crate, which do.
//!
//! Prints one digest a line: the same digest, the same bytes. Compare `RAYON_NUM_THREADS=1` with `RAYON_NUM_THREADS=2`.
//! Where it was run (x86-64, one and two threads), burn's bytes did not depend on the threads, nor those of its
//! convolutions on the batch; but its linear layer gave other ones for a batch of one row (`small-cnn`).
//!
//! ```text
//! RAYON_NUM_THREADS=1 cargo run --release --example burn_bytes
//! ```

use muso_models::burn::module::Module;
use muso_models::burn::tensor::{Device, Tensor};
use muso_models::{Architecture, Folded, Mode, Network, NetworkConfig, Statistics, Tape, params};

const IMAGES: usize = 250;

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data = tensor.without_autodiff().into_data();
    data.try_into_vec().expect("f32 tensors")
}

/// Returns the FNV-1a hash of the bytes.
fn digest(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the gradients of a training step on all images.
fn gradients(net: &Network, images: Tensor<4>, by_burn: bool) -> Vec<f32> {
    let (statistics, tape) = (Statistics::default(), Tape::default());
    let mode = Mode::Train(&statistics);
    let logits = match by_burn {
        true => net.forward(images, mode),
        false => net.forward_on(images, mode, &tape),
    };
    let back = logits.powi_scalar(2).mean().backward();
    let gradients = match by_burn {
        true => params::gradients(net, &back),
        false => tape.gradients(net, &back),
    };
    gradients.into_iter().flat_map(values).collect()
}

fn main() -> Result<(), muso_models::ConfigError> {
    let device = Device::flex();
    for (architecture, image, width) in [
        (Architecture::SmallCnn, [1, 28, 28], 16),
        (Architecture::ResNet20, [3, 32, 32], 16),
        (Architecture::ResNet18, [3, 32, 32], 16),
        (Architecture::Vgg16Bn, [3, 32, 32], 8),
    ] {
        let [channels, height, across] = image;
        let size = channels * height * across;
        let pixels: Vec<f32> = (0..IMAGES * size)
            .map(|i| ((i * 7919 + 13) % 10_007) as f32 / 10_007.0 - 0.5)
            .collect();
        let images = Tensor::<1>::from_data(&pixels[..], &device);
        let images = images.reshape([IMAGES, channels, height, across]);
        let config = NetworkConfig::new(architecture, 10, image).with_width(width);
        let net = config.init(1, &device)?;
        let folded = net.folded();
        type Features = fn(&Network, &Folded, Tensor<4>) -> Tensor<2>;
        let ways: [(&str, Features); 3] = [
            ("burn", |net, _, images| net.features(images, Mode::Eval)),
            ("burn, folded", |_, folded, images| {
                folded.features_by_burn(images)
            }),
            ("direct", |_, folded, images| folded.features(images)),
        ];
        for (name, features) in ways {
            for batch in [1, 7, IMAGES] {
                let rows: Vec<f32> = (0..IMAGES)
                    .step_by(batch)
                    .map(|first| images.clone().narrow(0, first, batch.min(IMAGES - first)))
                    .flat_map(|images| values(features(&net, &folded, images)))
                    .collect();
                let digest = digest(&rows);
                println!(
                    "{architecture:<9} {name:<12} features, batches of {batch:<3} {digest:016x}"
                );
            }
        }
        let net = net.train();
        let few = images.narrow(0, 0, 32);
        for (name, by_burn) in [("burn", true), ("direct", false)] {
            let digest = digest(&gradients(&net, few.clone(), by_burn));
            println!("{architecture:<9} {name:<12} gradients                {digest:016x}");
        }
    }
    Ok(())
}
