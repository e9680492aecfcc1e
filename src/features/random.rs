//! Random Fourier features: z(x) = √(1/m) [cos(Ωx), sin(Ωx)], Ω of m rows drawn from N(0, I/σ²).
//!
//! Their inner products approach the Gaussian kernel exp(−‖x − x′‖²/2σ²), and every row has norm 1 exactly. With
//! D = 2m above the number of samples the linear model on top can interpolate: the paper's over-parameterised regime.
//!
//! ```
//! use muso::engine::{CpuEngine, Matrix};
//! use muso::features::RandomFeatures;
//! # fn main() -> muso::Result<()> {
//! let engine = CpuEngine::new(None)?;
//! let map = RandomFeatures::new(3, 500, 1.0, 7)?;
//! let inputs = Matrix::from_vec(2, 3, vec![0.0, 0.1, 0.2, 0.5, 0.1, 0.0]);
//! let z = map.apply(&engine, &inputs)?;
//! assert_eq!((z.rows(), z.cols()), (2, 1000));
//! assert!((z.norm_squared() - 2.0).abs() < 1e-12);
//! # Ok(())
//! # }
//! ```

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::engine::{Engine, Matrix, Rows};
use crate::error::{Error, Result};

/// Input rows mapped at a time.
const BATCH: usize = 512;

/// A fixed draw of frequencies.
#[derive(Clone, Debug)]
pub struct RandomFeatures {
    /// inputs × m: Ωᵀ.
    frequencies: Matrix,
}

impl RandomFeatures {
    /// Draws `count` frequencies for `inputs`-dimensional data with bandwidth `sigma`.
    pub fn new(inputs: usize, count: usize, sigma: f64, seed: u64) -> Result<Self> {
        if !(sigma > 0.0 && sigma.is_finite()) {
            return Err(Error::Parameter {
                name: "sigma",
                value: sigma.to_string(),
                expected: "a positive number".into(),
            });
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Drawn frequency by frequency, so that more of them extend the same sequence.
        let mut frequencies = Matrix::zeros(inputs, count);
        for j in 0..count {
            for i in 0..inputs {
                let normal: f64 = StandardNormal.sample(&mut rng);
                frequencies[(i, j)] = normal / sigma;
            }
        }
        Ok(Self { frequencies })
    }

    /// Returns D, twice the number of frequencies.
    pub fn width(&self) -> usize {
        2 * self.frequencies.cols()
    }

    /// Returns Ωᵀ, inputs × m.
    pub fn frequencies(&self) -> &Matrix {
        &self.frequencies
    }

    /// Returns √(1/m), which makes every row of norm 1.
    fn scale(&self) -> f64 {
        (1.0 / self.frequencies.cols() as f64).sqrt()
    }

    /// Maps `inputs` batch by batch and hands each batch of features to `sink` with the number of its first row.
    pub fn stream<E: Engine>(
        &self,
        engine: &E,
        inputs: Rows<'_>,
        mut sink: impl FnMut(usize, &Matrix) -> Result<()>,
    ) -> Result<()> {
        for start in (0..inputs.rows()).step_by(BATCH) {
            let end = inputs.rows().min(start + BATCH);
            let features = engine.fourier_features(
                inputs.slice(start, end),
                &self.frequencies,
                self.scale(),
            )?;
            sink(start, &features)?;
        }
        Ok(())
    }

    /// Maps all of `inputs`.
    pub fn apply<E: Engine>(&self, engine: &E, inputs: &Matrix) -> Result<Matrix> {
        engine.fourier_features(inputs.as_rows(), &self.frequencies, self.scale())
    }
}
