//! From bytes to the numbers that a network takes: (x/255 − mean) / std, by channel.

use serde::{Deserialize, Serialize};

use super::Kind;
use crate::{Error, Result};

/// Mean and standard deviation of each channel, for pixels scaled to 0..1. In a configuration the name of a data set
/// stands for its own: `normalisation = "imagenet"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Spelling")]
pub struct Normalisation {
    /// The mean of each channel.
    pub mean: Vec<f64>,
    /// The standard deviation of each channel.
    pub std: Vec<f64>,
}

/// The two ways to write one.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a name, or { mean = [...], std = [...] }")]
enum Spelling {
    Named(String),
    Given { mean: Vec<f64>, std: Vec<f64> },
}

impl TryFrom<Spelling> for Normalisation {
    type Error = Error;

    fn try_from(spelling: Spelling) -> Result<Self> {
        match spelling {
            Spelling::Named(name) => Self::named(&name),
            Spelling::Given { mean, std } => Ok(Self { mean, std }),
        }
    }
}

impl Normalisation {
    /// Returns the usual normalisation of a data set by its name (see [`Kind`]), or `imagenet`.
    ///
    /// ```
    /// use muso::data::images::Normalisation;
    /// assert_eq!(Normalisation::named("imagenet")?.mean, [0.485, 0.456, 0.406]);
    /// assert_eq!(Normalisation::named("mnist")?.std, [0.3081]);
    /// # Ok::<(), muso::Error>(())
    /// ```
    pub fn named(name: &str) -> Result<Self> {
        if name == "imagenet" {
            return Ok(Self::of(Kind::Folder));
        }
        name.parse().map(Self::of).map_err(|_| Error::Parameter {
            name: "normalisation",
            value: crate::data::shown(name, 40),
            expected: format!("imagenet, {}", Kind::listed()),
        })
    }

    /// Returns the usual normalisation of a data set. For a folder of one's own images it is that of ImageNet.
    pub fn of(kind: Kind) -> Self {
        let rgb = |mean: [f64; 3], std: [f64; 3]| Self {
            mean: mean.to_vec(),
            std: std.to_vec(),
        };
        match kind {
            Kind::Fashion => Self {
                mean: vec![0.2860],
                std: vec![0.3530],
            },
            Kind::Mnist => Self {
                mean: vec![crate::data::mnist::PIXEL_MEAN],
                std: vec![crate::data::mnist::PIXEL_STD],
            },
            Kind::Cifar10 => rgb([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
            Kind::Cifar100 | Kind::Cifar20 => {
                rgb([0.5071, 0.4865, 0.4409], [0.2673, 0.2564, 0.2762])
            }
            Kind::TinyImagenet => rgb([0.4802, 0.4481, 0.3975], [0.2770, 0.2691, 0.2821]),
            Kind::Folder => rgb([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        }
    }

    /// Returns lookup tables from bytes to normalised values, one per channel.
    ///
    /// # Errors
    /// If there is not one mean and one standard deviation for each channel, or if they are not usable numbers.
    pub(super) fn tables(&self, channels: usize) -> Result<Vec<[f32; 256]>> {
        if self.mean.len() != channels || self.std.len() != channels {
            return Err(Error::Shape {
                what: "normalisation".to_owned(),
                found: format!("{} means and {} stds", self.mean.len(), self.std.len()),
                expected: format!("one of each for each of the {channels} channels"),
            });
        }
        let usable = |(&mean, &std): (&f64, &f64)| {
            let table: [f32; 256] =
                std::array::from_fn(|x| ((x as f64 / 255.0 - mean) / std) as f32);
            // All between are finite when both ends are.
            let finite = table[0].is_finite() && table[255].is_finite();
            if std > 0.0 && finite {
                return Ok(table);
            }
            Err(Error::Parameter {
                name: "normalisation",
                value: format!("mean {mean}, std {std}"),
                expected: "finite numbers, the std above 0".to_owned(),
            })
        };
        self.mean.iter().zip(&self.std).map(usable).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_the_formula() {
        let tables = Normalisation::of(Kind::Cifar10).tables(3).unwrap();
        for x in [0_u8, 1, 100, 255] {
            let wanted = (f64::from(x) / 255.0 - 0.4822) / 0.2435;
            assert_eq!(tables[1][usize::from(x)], wanted as f32);
        }
    }

    #[test]
    fn is_read_by_name_or_by_value() {
        let read = |text: &str| serde_json::from_str::<Normalisation>(text);
        let imagenet = Normalisation::named("imagenet").unwrap();
        assert_eq!(read("\"imagenet\"").unwrap(), imagenet);
        let written = serde_json::to_string(&imagenet).unwrap();
        assert_eq!(read(&written).unwrap(), imagenet);
        let unknown = read("\"imagnet\"").unwrap_err().to_string();
        assert!(unknown.contains("imagnet"), "{unknown}");
        let shape = read("{\"mean\": [0.5]}").unwrap_err().to_string();
        assert!(shape.contains("{ mean = [...], std = [...] }"), "{shape}");
    }

    #[test]
    fn unusable_ones_are_refused() {
        let new = |mean: &[f64], std: &[f64]| Normalisation {
            mean: mean.to_vec(),
            std: std.to_vec(),
        };
        for (bad, wanted) in [
            (new(&[0.5], &[0.5, 0.5]), "1 means and 2 stds"),
            (new(&[], &[]), "0 means and 0 stds"),
            (new(&[0.5], &[0.0]), "std 0"),
            (new(&[0.5], &[-1.0]), "std -1"),
            (new(&[f64::NAN], &[1.0]), "mean NaN"),
            (new(&[0.0], &[f64::NAN]), "std NaN"),
            (new(&[0.0], &[1e-300]), "std 0.000"),
            (new(&[f64::INFINITY], &[1.0]), "mean inf"),
        ] {
            let error = bad.tables(1).unwrap_err();
            assert!(error.is_input());
            assert!(error.to_string().contains(wanted), "{error}");
        }
        let error = Normalisation::named("cifar11").unwrap_err();
        assert!(
            error.to_string().contains("imagenet, fashion, mnist"),
            "{error}"
        );
    }

    #[test]
    fn every_set_has_one_that_survives_json() {
        for kind in Kind::ALL {
            let one = Normalisation::named(kind.name()).unwrap();
            assert!(one.tables(one.mean.len()).is_ok());
            let json = serde_json::to_string(&one).unwrap();
            assert_eq!(serde_json::from_str::<Normalisation>(&json).unwrap(), one);
        }
    }
}
