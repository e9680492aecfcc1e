//! Size of a comparison before it is run: its jobs, the multiplications of each, and about how long a GPU would take.
//!
//! An estimate, and one that says so: it counts the convolutions of the networks (training is three forward passes) and divides
//! by a share of the device's published f32 peak.

use muso_models::{Architecture, NetworkConfig};

use super::config::Config;
use super::plan::Arm;
use crate::error::{Error, Result};

/// GPUs by name, with their published peak for dense f32 in TFLOP/s.
pub const GPUS: [(&str, f64); 4] = [
    ("rtx-4090", 82.6),
    ("a100", 19.5),
    ("h100", 66.9),
    ("rtx-3090", 35.6),
];

/// Share of the peak that training of such networks is taken to reach.
pub const SHARE: f64 = 0.25;

/// Finds the peak of a GPU by its name, in TFLOP/s.
///
/// # Errors
/// If the name is not in [`GPUS`].
pub fn peak_of(gpu: &str) -> Result<f64> {
    let wanted = gpu.to_ascii_lowercase().replace(' ', "-");
    let known = GPUS.iter().find(|(name, _)| *name == wanted);
    known
        .map(|(_, peak)| *peak)
        .ok_or_else(|| Error::Parameter {
            name: "`.gpu`",
            value: gpu.into(),
            expected: GPUS.map(|(name, _)| name).join(", "),
        })
}

/// Returns the multiplications and additions of one image's forward pass through the convolutions and the head, in pairs.
pub fn forward_macs(network: &NetworkConfig) -> f64 {
    let [channels, side, _] = network.image;
    let width = network
        .width
        .unwrap_or(network.architecture.default_width());
    let residual = |blocks: &[usize]| {
        let mut macs = (9 * channels * width * side * side) as f64;
        let (mut from, mut side) = (width, side);
        for (stage, &count) in blocks.iter().enumerate() {
            let to = width << stage;
            for block in 0..count {
                if stage > 0 && block == 0 {
                    side = side.div_ceil(2);
                }
                let area = (side * side) as f64;
                macs += area * (9 * (from * to + to * to)) as f64;
                if from != to && !network.architecture.is_cifar_resnet() {
                    macs += area * (from * to) as f64;
                }
                from = to;
            }
        }
        macs
    };
    let body = match (network.architecture, network.architecture.residual_blocks()) {
        (_, Some(blocks)) => residual(blocks),
        (Architecture::Vgg16Bn, _) => {
            let (mut macs, mut from, mut side) = (0.0, channels, side);
            for (wider, convolutions) in [(1, 2), (2, 2), (4, 3), (8, 3), (8, 3)] {
                for _ in 0..convolutions {
                    let to = width * wider;
                    macs += (9 * from * to * side * side) as f64;
                    from = to;
                }
                side = side.div_ceil(2);
            }
            macs
        }
        // Two convolutions with a pooling after each, and a wide layer: small enough not to matter.
        _ => (9 * side * side * (channels * width + width * width)) as f64,
    };
    body + (network.features() * network.classes) as f64
}

/// A job of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// What it is, such as `random (1%), seed 0, MUSO (paper)`.
    pub name: String,
    /// Rows that go through the network forward and back, epochs counted.
    pub passes: f64,
}

impl Job {
    /// Returns the job's floating-point operations: three forward passes of two operations a pair.
    pub fn flops(&self, network: &NetworkConfig) -> f64 {
        6.0 * forward_macs(network) * self.passes
    }
}

/// Lists the jobs of a configuration on `rows` training rows, of which `forgotten[scenario]` are forgotten; `names` are
/// those of the scenarios.
///
/// # Errors
/// If the configuration has a method that does not exist.
pub fn jobs(config: &Config, names: &[&str], forgotten: &[usize], rows: usize) -> Result<Vec<Job>> {
    let mut arms = config.arms()?;
    arms.retain(|arm| arm.key != "retrain");
    let epochs = config.train.epochs as f64;
    let job = |name: String, passes: f64| Job { name, passes };
    let mut jobs: Vec<Job> = Vec::new();
    for seed in &config.seeds {
        jobs.push(job(format!("original, seed {seed}"), epochs * rows as f64));
    }
    for (name, gone) in names.iter().zip(forgotten) {
        for seed in &config.seeds {
            for order in 1..=config.retrains.max(1) {
                let name = format!("{name}, seed {seed}, retrained {order}");
                jobs.push(job(name, epochs * (rows - gone) as f64));
            }
            for arm in &arms {
                let name = format!("{name}, seed {seed}, {}", arm.name);
                jobs.push(job(name, epochs_of(arm, epochs) * rows as f64));
            }
        }
    }
    Ok(jobs)
}

/// Returns about how many epochs of all rows an arm is: those of its recipe, the longer one where it has two, and what it
/// trains or looks at besides.
fn epochs_of(arm: &Arm, train: f64) -> f64 {
    let settings = arm.method.settings();
    let epochs = |key: &str| settings.get(key)?.get("epochs")?.as_integer();
    let recipes = [epochs("recipe"), epochs("class-recipe")];
    let longest = recipes.into_iter().flatten().max().unwrap_or(1) as f64;
    let refresh = settings.get("refresh").and_then(toml::Value::as_float);
    longest + refresh.unwrap_or(0.0) * train
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Published counts of the networks as they are on 32×32 images, in units of 10⁶ pairs: 555.8 and 1,159.4 of
    /// ResNet-18 and -34, 313.2 of VGG16 without its wide layers, 40.6 of ResNet-20, 125.5 of ResNet-56.
    #[test]
    fn forward_passes_are_as_long_as_published() {
        for (architecture, published) in [
            (Architecture::ResNet18, 555.8),
            (Architecture::ResNet34, 1_159.4),
            (Architecture::Vgg16Bn, 313.2),
            (Architecture::ResNet20, 40.6),
            (Architecture::ResNet56, 125.5),
        ] {
            let network = NetworkConfig::new(architecture, 10, [3, 32, 32]);
            let found = forward_macs(&network) / 1e6;
            assert!(
                (found / published - 1.0).abs() < 0.01,
                "{architecture}: {found}"
            );
        }
    }

    #[test]
    fn gpus_are_found_by_name_and_others_refused() {
        assert_eq!(peak_of("RTX 4090").unwrap(), 82.6);
        let said = peak_of("abacus").unwrap_err().to_string();
        assert!(said.contains("abacus") && said.contains("a100"), "{said}");
    }
}
