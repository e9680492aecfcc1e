//! Settings of MUSO that were published: the paper's text, and what the authors' code does at two commits.

use serde::{Deserialize, Serialize};

use super::{LabelKind, Muso, Projection, Reference, Relabel, RidgePath, Sampling, short};
use crate::train::{Recipe, Rule, Schedule};

/// Settings that were published, by where. Which of them made the published tables is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preset {
    /// The text of the paper: y_ref = y_u, λ = 1e-6, R = 0.2, labels as outputs; what it leaves open is chosen here.
    #[serde(rename = "paper")]
    Paper,
    /// The authors' code as uploaded on 2024-10-22 (172809c).
    #[serde(rename = "released-2024-10")]
    October2024,
    /// The authors' code as updated on 2025-02-05 (da8a0db for classes, 8c113dd for random rows).
    #[serde(rename = "released-2025-02")]
    February2025,
}

/// λ of the paper, and the value that the path of the released code would end at.
const RIDGES: [f64; 2] = [1e-6, 1e-2];

impl Preset {
    /// All presets, the paper's text first.
    pub const ALL: [Self; 3] = [Self::Paper, Self::October2024, Self::February2025];

    /// Returns the name in settings, such as `released-2024-10`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::October2024 => "released-2024-10",
            Self::February2025 => "released-2025-02",
        }
    }

    /// Returns the name of MUSO with these settings in tables.
    pub fn method_name(self) -> &'static str {
        match self {
            Self::Paper => "MUSO (paper)",
            Self::October2024 => "MUSO (released 2024-10)",
            Self::February2025 => "MUSO (released 2025-02)",
        }
    }

    /// Returns the preset of that name, if there is one.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.key() == name)
    }

    /// Returns MUSO with these settings.
    pub fn settings(self) -> Muso {
        let adam = |epochs| short(Rule::Adam, epochs, 3e-5, 128);
        let cosine = |rule, epochs, rate| Recipe {
            schedule: Schedule::Cosine,
            ..short(rule, epochs, rate, 128)
        };
        let [ridge, end] = RIDGES;
        let released = Muso {
            preset: Some(self),
            sampling: Sampling::Released(0.2),
            labels: LabelKind::Hard,
            reference: Reference::Logits,
            relabel: Relabel::Batch,
            ridge: RidgePath::LaggedCosine(ridge, end),
            ..Muso::default()
        };
        match self {
            Self::Paper => Muso {
                preset: Some(self),
                sampling: Sampling::Random(0.2),
                labels: LabelKind::Soft,
                reference: Reference::Labels,
                ridge: RidgePath::Constant(ridge),
                converged: Some(0.01),
                // The rule of pre-training at a hundredth of its rate, within the text's 1 to 10 %.
                recipe: short(Rule::Sgd, 10, 1e-3, 128),
                ..Muso::default()
            },
            Self::October2024 => Muso {
                projector: Projection::October2024,
                class_ridge: Some(RidgePath::Constant(ridge)),
                recipe: adam(3),
                class_recipe: Some(cosine(Rule::Sgd, 10, 5.55e-5)),
                ..released
            },
            Self::February2025 => Muso {
                projector: Projection::February2025,
                recipe: adam(2),
                class_recipe: Some(cosine(Rule::AdamW, 5, 2.8e-4)),
                ..released
            },
        }
    }
}
