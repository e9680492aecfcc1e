//! State dictionaries: what a checkpoint holds of a network, named arrays in PyTorch's names and layout.
//!
//! [`Network::state`] takes a network apart and [`Network::load`] puts one together. Names and shapes are those of the
//! published PyTorch networks: a linear weight is [out, in] here and [in, out] inside burn. Loading also understands the
//! names of other well-known versions of the same networks, and the prefix that `DataParallel` puts before them.
//! `num_batches_tracked` is neither written nor read: PyTorch adds it where a file has none, even in strict mode.
//!
//! ```
//! use muso_models::burn::tensor::Device;
//! use muso_models::{Architecture, NetworkConfig};
//!
//! let config = NetworkConfig::new(Architecture::SmallCnn, 10, [1, 28, 28]);
//! let device = Device::flex();
//! let trained = config.init(1, &device)?;
//! let state = trained.state();
//! assert_eq!(state.get("fc2.weight").unwrap().shape, [10, 128]);
//!
//! let copy = NetworkConfig::guess(&state)?.init(2, &device)?.load(&state)?;
//! assert_eq!(copy.state(), state);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Tensor, TensorData};

use crate::network::{Architecture, ConfigError, Network, NetworkConfig};
use crate::params::in_place_of;
use crate::resnet::ResNet;
use crate::vgg;

/// A named array of a [`StateDict`].
#[derive(Clone, Debug, PartialEq)]
pub struct StateTensor {
    /// The name that the published PyTorch network gives it.
    pub name: String,
    /// The shape in PyTorch's layout.
    pub shape: Vec<usize>,
    /// The elements in row-major order.
    pub values: Vec<f32>,
}

/// The arrays of a network, in its own order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateDict(Vec<StateTensor>);

impl StateDict {
    /// Returns a state without arrays.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an array at the end.
    ///
    /// # Panics
    /// If the shape does not have as many elements as there are values.
    pub fn push(&mut self, name: impl Into<String>, shape: Vec<usize>, values: Vec<f32>) {
        let name = name.into();
        assert_eq!(
            shape.iter().product::<usize>(),
            values.len(),
            "values of `{name}`, shape {shape:?}"
        );
        self.0.push(StateTensor {
            name,
            shape,
            values,
        });
    }

    /// Returns the array of this name.
    pub fn get(&self, name: &str) -> Option<&StateTensor> {
        self.0.iter().find(|tensor| tensor.name == name)
    }

    /// Iterates over the arrays in the order of the network.
    pub fn iter(&self) -> impl Iterator<Item = &StateTensor> {
        self.0.iter()
    }

    /// Returns the number of arrays.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no arrays.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<StateTensor> for StateDict {
    fn from_iter<I: IntoIterator<Item = StateTensor>>(tensors: I) -> Self {
        Self(tensors.into_iter().collect())
    }
}

/// Differences between a state and the network that it should go into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadError {
    /// The architecture of the state and that of the network, where both can be told and differ.
    pub architectures: Option<(Architecture, Architecture)>,
    /// Names that the network has and the state has not.
    pub missing: Vec<String>,
    /// Names that the state has and the network has not, or that it has twice.
    pub unexpected: Vec<String>,
    /// Names with the network's shape and the state's.
    pub reshaped: Vec<(String, Vec<usize>, Vec<usize>)>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A wrong architecture makes hundreds.
        const LISTED: usize = 3;
        fn list(names: impl ExactSizeIterator<Item = String>) -> String {
            let count = names.len();
            let mut text = names.take(LISTED).collect::<Vec<_>>().join(", ");
            if count > LISTED {
                text.push_str(&format!(" and {} more", count - LISTED));
            }
            text
        }
        let quoted = |names: &[String]| {
            let names = names
                .iter()
                .map(|name| format!("`{}`", name.escape_debug()));
            list(names.collect::<Vec<_>>().into_iter())
        };
        let mut parts = Vec::new();
        if !self.reshaped.is_empty() {
            let shapes = self.reshaped.iter().map(|(name, expected, found)| {
                format!("`{name}` is {found:?} and should be {expected:?}")
            });
            parts.push(list(shapes.collect::<Vec<_>>().into_iter()));
        }
        if !self.missing.is_empty() {
            parts.push(format!("missing {}", quoted(&self.missing)));
        }
        if !self.unexpected.is_empty() {
            parts.push(format!("unexpected {}", quoted(&self.unexpected)));
        }
        let parts = parts.join("; ");
        match self.architectures {
            Some((found, expected)) => {
                write!(
                    f,
                    "a checkpoint of {found}, which is not {expected}: {parts}"
                )
            }
            None => write!(f, "a checkpoint of another architecture: {parts}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Returns the published name of a parameter from its path through the modules, whose names are the published ones but
/// for what is said here.
fn published_name(network: &Network, path: &[String]) -> String {
    // The first is the variant of the enum.
    let mut path = path.iter().skip(1).map(String::as_str);
    let mut name: Vec<String> = Vec::new();
    while let Some(part) = path.next() {
        match part {
            "head" => name.push(head_name(network).to_owned()),
            "layers" => {
                let stage = path.next().and_then(|stage| stage.parse().ok());
                name.push(format!("layer{}", stage.unwrap_or(0_usize) + 1));
            }
            // The parts of a convolution with its normalisation.
            "conv" | "norm" => {
                let is_norm = part == "norm";
                let own = name.pop().unwrap_or_default();
                if own == "downsample" {
                    name.extend([own, usize::from(is_norm).to_string()]);
                } else if let Ok(unit) = own.parse() {
                    // VGG numbers them along with what has no weights.
                    let number = vgg::layout().nth(unit).map_or(0, |(number, _)| number);
                    name.push((number + usize::from(is_norm)).to_string());
                } else if is_norm {
                    name.push(own.replace("conv", "bn"));
                } else {
                    name.push(own);
                }
            }
            part => name.push(part.to_owned()),
        }
    }
    name.join(".")
}

/// Returns the published name of the head.
fn head_name(network: &Network) -> &'static str {
    match network {
        Network::SmallCnn(_) => "fc2",
        Network::ResNet(_) => "fc",
        Network::CifarResNet(_) => "linear",
        Network::Vgg(_) => "classifier",
    }
}

/// Prefixes that wrappers put before every name.
const WRAPPERS: [&str; 4] = ["module.", "_orig_mod.", "model.", "net."];
const COUNTER: &str = "num_batches_tracked";

/// Returns the arrays with their names, without what all names begin with and without counters.
fn unwrapped(state: &StateDict) -> Vec<(&str, &StateTensor)> {
    let mut named: Vec<(&str, &StateTensor)> = state
        .iter()
        .filter(|tensor| !tensor.name.ends_with(COUNTER))
        .map(|tensor| (tensor.name.as_str(), tensor))
        .collect();
    let common = |named: &[(&str, &StateTensor)]| {
        WRAPPERS
            .into_iter()
            .find(|wrapper| named.iter().all(|(name, _)| name.starts_with(wrapper)))
    };
    while !named.is_empty()
        && let Some(wrapper) = common(&named)
    {
        for (name, _) in &mut named {
            *name = &name[wrapper.len()..];
        }
    }
    named
}

/// Returns the name here of a tensor that may be from another version of the network.
fn renamed(network: &Network, name: &str) -> String {
    if let Network::SmallCnn(_) = network {
        return name.to_owned();
    }
    match name.split_once('.') {
        // pytorch-cifar says `linear` where torchvision says `fc`.
        Some(("fc" | "linear", rest)) => format!("{}.{rest}", head_name(network)),
        _ => name.replace(".shortcut.", ".downsample."),
    }
}

struct Take<'a> {
    network: &'a Network,
    path: Vec<String>,
    state: StateDict,
}

impl ModuleVisitor for Take<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let mut tensor = param.val().without_autodiff();
        if D == 2 {
            tensor = tensor.swap_dims(0, 1);
        }
        let shape = tensor.dims().to_vec();
        let values = tensor.into_data().convert::<f32>();
        let values = values.try_into_vec().expect("the data was just made f32");
        let name = published_name(self.network, &self.path);
        self.state.push(name, shape, values);
    }
}

struct Shapes<'a> {
    network: &'a Network,
    path: Vec<String>,
    shapes: Vec<(String, Vec<usize>)>,
}

impl ModuleVisitor for Shapes<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let mut shape = param.lazy_shape().to_vec();
        if D == 2 {
            shape.reverse();
        }
        let name = published_name(self.network, &self.path);
        self.shapes.push((name, shape));
    }
}

struct Put<'a> {
    values: std::vec::IntoIter<&'a StateTensor>,
}

impl ModuleMapper for Put<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let tensor = self.values.next().expect("one tensor a parameter");
        param.map(|old| {
            let values = match tensor.shape[..] {
                [rows, cols] => transposed(&tensor.values, rows, cols),
                _ => tensor.values.clone(),
            };
            let device = old.clone().without_autodiff().device();
            let new = Tensor::from_data(TensorData::new(values, old.dims()), &device);
            in_place_of(&old, new)
        })
    }
}

/// Transposes a row-major matrix.
fn transposed(values: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    (0..cols)
        .flat_map(|j| (0..rows).map(move |i| values[i * cols + j]))
        .collect()
}

impl Network {
    /// Copies the weights and the running statistics out.
    pub fn state(&self) -> StateDict {
        let mut take = Take {
            network: self,
            path: Vec::new(),
            state: StateDict::new(),
        };
        self.visit(&mut take);
        take.state
    }

    /// Replaces the weights and the running statistics by those of a checkpoint, on the same device.
    ///
    /// # Errors
    /// If a tensor is missing, superfluous or of another shape.
    pub fn load(self, state: &StateDict) -> Result<Self, LoadError> {
        let mut shapes = Shapes {
            network: &self,
            path: Vec::new(),
            shapes: Vec::new(),
        };
        self.visit(&mut shapes);
        let mut error = LoadError::default();
        let mut given = BTreeMap::new();
        for (name, tensor) in unwrapped(state) {
            if given.insert(renamed(&self, name), tensor).is_some() {
                error.unexpected.push(tensor.name.clone());
            }
        }
        let mut values = Vec::new();
        for (name, shape) in shapes.shapes {
            match given.remove(&name) {
                None => error.missing.push(name),
                Some(tensor) if tensor.shape != shape => {
                    error.reshaped.push((name, shape, tensor.shape.clone()));
                }
                Some(tensor) => values.push(tensor),
            }
        }
        error
            .unexpected
            .extend(given.into_values().map(|tensor| tensor.name.clone()));
        if error != LoadError::default() {
            let of = |state: &StateDict| Some(NetworkConfig::guess(state).ok()?.architecture);
            let both = of(state).zip(of(&self.state()));
            error.architectures = both.filter(|(found, expected)| found != expected);
            return Err(error);
        }
        Ok(self.map(&mut Put {
            values: values.into_iter(),
        }))
    }
}

impl NetworkConfig {
    /// Finds out the configuration that a checkpoint is of from the names and shapes of its tensors.
    ///
    /// Loading then checks every one of them. The height and width of the images are in the tensors of the small CNN
    /// only, and there as their product, so that a square is assumed; for the others they are the usual ones, 32×32, or
    /// 64×64 where a ResNet has the large stem, and the caller may set them as the data have it.
    ///
    /// # Errors
    /// If it is of no architecture that is known here.
    pub fn guess(state: &StateDict) -> Result<Self, ConfigError> {
        let named: BTreeMap<&str, &StateTensor> = unwrapped(state).into_iter().collect();
        let shape = |names: &[&str]| {
            let found = names.iter().find_map(|name| named.get(name));
            found.map(|tensor| tensor.shape.as_slice())
        };
        let blocks = |stage: &str| {
            (0..)
                .take_while(|i| named.contains_key(format!("{stage}.{i}.conv1.weight").as_str()))
                .count()
        };
        let stages: Vec<usize> = ["layer1", "layer2", "layer3", "layer4"]
            .map(blocks)
            .into_iter()
            .take_while(|&count| count > 0)
            .collect();
        let unknown =
            || ConfigError::new("the tensors are not those of an architecture known here");

        let residual = Architecture::ALL
            .into_iter()
            .find(|known| known.residual_blocks() == Some(stages.as_slice()));
        let (architecture, stem, head) = if let Some(architecture) = residual {
            let heads = &["fc.weight", "linear.weight"][..];
            (architecture, "conv1.weight", heads)
        } else if named.contains_key("features.0.weight") {
            let heads = &["classifier.weight", "fc.weight", "linear.weight"][..];
            (Architecture::Vgg16Bn, "features.0.weight", heads)
        } else {
            (Architecture::SmallCnn, "conv1.weight", &["fc2.weight"][..])
        };
        let (Some(&[width, channels, kernel, _]), Some(&[classes, _])) =
            (shape(&[stem]), shape(head))
        else {
            return Err(unknown());
        };
        let side = match architecture {
            Architecture::SmallCnn => {
                let Some(&[_, flat]) = shape(&["fc1.weight"]) else {
                    return Err(unknown());
                };
                4 * (flat / (2 * width).max(1)).isqrt()
            }
            Architecture::ResNet18 | Architecture::ResNet34 if kernel == 7 => ResNet::LARGE,
            _ => 32,
        };
        let config = Self {
            architecture,
            classes,
            image: [channels, side, side],
            width: (width != architecture.default_width()).then_some(width),
            norm: architecture == Architecture::SmallCnn && named.contains_key("bn1.weight"),
        };
        config.check()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn config(architecture: Architecture) -> NetworkConfig {
        NetworkConfig::new(architecture, 5, [3, 32, 32]).with_width(4)
    }

    fn renamed_all(state: &StateDict, rename: impl Fn(&str) -> String) -> StateDict {
        state
            .iter()
            .map(|tensor| StateTensor {
                name: rename(&tensor.name),
                ..tensor.clone()
            })
            .collect()
    }

    #[test]
    fn names_and_shapes_are_the_published_ones() {
        let device = Device::flex();
        let state = |architecture| config(architecture).init(0, &device).unwrap().state();
        let names = |state: &StateDict| -> Vec<String> {
            state.iter().map(|tensor| tensor.name.clone()).collect()
        };

        let resnet = state(Architecture::ResNet18);
        // Eight blocks of two convolutions, three projections and the stem, each with four of its normalisation.
        assert_eq!(resnet.len(), 20 * 5 + 2);
        assert_eq!(
            names(&resnet)[..7],
            [
                "conv1.weight",
                "bn1.weight",
                "bn1.bias",
                "bn1.running_mean",
                "bn1.running_var",
                "layer1.0.conv1.weight",
                "layer1.0.bn1.weight"
            ]
        );
        let shape = |name: &str| resnet.get(name).unwrap().shape.clone();
        assert_eq!(shape("layer2.0.downsample.0.weight"), [8, 4, 1, 1]);
        assert_eq!(shape("layer2.0.downsample.1.running_var"), [8]);
        assert_eq!(shape("fc.weight"), [5, 32]);

        let vgg = state(Architecture::Vgg16Bn);
        assert_eq!(vgg.len(), 13 * 6 + 2);
        let convolutions: Vec<usize> = vgg
            .iter()
            .filter(|tensor| tensor.shape.len() == 4)
            .map(|tensor| tensor.name.split('.').nth(1).unwrap().parse().unwrap())
            .collect();
        // As in torchvision.models.vgg16_bn and in pytorch-cifar.
        assert_eq!(
            convolutions,
            [0, 3, 7, 10, 14, 17, 20, 24, 27, 30, 34, 37, 40]
        );
        assert_eq!(vgg.get("features.41.running_mean").unwrap().shape, [32]);
        assert_eq!(vgg.get("classifier.weight").unwrap().shape, [5, 32]);

        for (architecture, depth) in [
            (Architecture::ResNet20, 20),
            (Architecture::ResNet32, 32),
            (Architecture::ResNet44, 44),
            (Architecture::ResNet56, 56),
            (Architecture::ResNet110, 110),
        ] {
            let cifar = state(architecture);
            assert_eq!(cifar.len(), (depth - 1) * 5 + 2);
            assert_eq!(cifar.get("linear.weight").unwrap().shape, [5, 16]);
            let last = format!("layer3.{}.bn2.running_var", (depth - 2) / 6 - 1);
            assert_eq!(cifar.get(&last).unwrap().shape, [16], "{architecture}");
        }

        let small = config(Architecture::SmallCnn).with_norm(true);
        let small = small.init(0, &device).unwrap().state();
        assert_eq!(small.len(), 2 * 6 + 4);
        assert_eq!(small.get("fc1.weight").unwrap().shape, [128, 8 * 64]);
    }

    #[test]
    fn a_state_goes_into_another_network_and_comes_back() {
        let device = Device::flex();
        for architecture in Architecture::ALL {
            for norm in [false, true] {
                let config = config(architecture).with_norm(norm);
                let state = config.init(1, &device).unwrap().state();
                let loaded = config.init(2, &device).unwrap().load(&state).unwrap();
                assert_eq!(loaded.state(), state, "{architecture}");
                let training = config.init(2, &device).unwrap().train();
                let training = training.load(&state).unwrap();
                assert_eq!(training.state(), state, "{architecture}, in training");
                let head = training.head().weight.val();
                assert!(head.is_require_grad(), "training goes on after a load");
            }
        }
    }

    #[test]
    fn linear_weights_are_transposed() {
        let device = Device::flex();
        let net = config(Architecture::ResNet20).init(1, &device).unwrap();
        let weight: Vec<f32> = net.head().weight.val().into_data().try_to_vec().unwrap();
        let state = net.state();
        let exported = state.get("linear.weight").unwrap();
        for class in 0..5 {
            for feature in 0..16 {
                assert_eq!(
                    exported.values[class * 16 + feature],
                    weight[feature * 5 + class]
                );
            }
        }
    }

    #[test]
    fn other_versions_of_the_names_are_understood() {
        let device = Device::flex();
        for (architecture, from, to) in [
            (Architecture::ResNet18, "downsample", "shortcut"),
            (Architecture::ResNet34, "fc.", "linear."),
            (Architecture::ResNet20, "linear.", "fc."),
            (Architecture::Vgg16Bn, "classifier.", "linear."),
            (Architecture::SmallCnn, "", "_orig_mod.module."),
            (Architecture::ResNet18, "", "module."),
        ] {
            let config = config(architecture);
            let state = config.init(1, &device).unwrap().state();
            let mut other = renamed_all(&state, |name| name.replacen(from, to, 1));
            assert_ne!(other, state);
            other.push("module.bn1.num_batches_tracked", vec![], vec![7.0]);
            let loaded = config.init(2, &device).unwrap().load(&other).unwrap();
            assert_eq!(loaded.state(), state, "{architecture} {to}");
            assert_eq!(
                NetworkConfig::guess(&other).unwrap(),
                config,
                "{architecture} {to}"
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let device = Device::flex();
        let config = config(Architecture::ResNet20);
        let net = config.init(1, &device).unwrap();
        let state = net.state();

        let wider = config.with_width(8).init(1, &device).unwrap();
        let error = wider.load(&state).unwrap_err();
        assert_eq!(
            error.reshaped.len(),
            state.len() - 1,
            "all but the head's bias"
        );
        assert_eq!(
            error.reshaped[0],
            ("conv1.weight".into(), vec![8, 3, 3, 3], vec![4, 3, 3, 3])
        );
        let text = error.to_string();
        assert!(
            text.contains("`conv1.weight` is [4, 3, 3, 3] and should be [8, 3, 3, 3]"),
            "{text}"
        );
        assert!(
            text.contains("another architecture") && text.contains("93 more"),
            "{text}"
        );

        let mut changed: StateDict = state.iter().skip(1).cloned().collect();
        changed.push("extra", vec![1], vec![0.0]);
        changed.push("linear.bias", vec![5], vec![0.0; 5]);
        let error = net.load(&changed).unwrap_err();
        assert_eq!(error.missing, ["conv1.weight"]);
        assert_eq!(error.unexpected, ["linear.bias", "extra"]);
        assert!(error.reshaped.is_empty());
    }

    #[test]
    fn a_checkpoint_of_another_depth_is_refused_with_its_own() {
        let device = Device::flex();
        for (own, other) in [
            (Architecture::ResNet20, Architecture::ResNet56),
            (Architecture::ResNet110, Architecture::ResNet32),
            (Architecture::ResNet18, Architecture::ResNet34),
        ] {
            let state = config(other).init(1, &device).unwrap().state();
            let state = renamed_all(&state, |name| format!("module.{name}"));
            let error = config(own).init(1, &device).unwrap().load(&state);
            let text = error.unwrap_err().to_string();
            let expected = format!("a checkpoint of {other}, which is not {own}");
            assert!(text.starts_with(&expected), "{text}");
        }
    }

    #[test]
    fn configurations_are_guessed_from_the_tensors() {
        let device = Device::flex();
        for config in [
            NetworkConfig::new(Architecture::ResNet18, 10, [3, 32, 32]).with_width(8),
            NetworkConfig::new(Architecture::ResNet18, 200, [3, 64, 64]).with_width(8),
            NetworkConfig::new(Architecture::ResNet34, 10, [1, 32, 32]).with_width(8),
            NetworkConfig::new(Architecture::ResNet20, 10, [3, 32, 32]),
            NetworkConfig::new(Architecture::ResNet44, 10, [3, 32, 32]).with_width(4),
            NetworkConfig::new(Architecture::ResNet110, 100, [3, 32, 32]),
            NetworkConfig::new(Architecture::Vgg16Bn, 10, [3, 32, 32]).with_width(8),
            NetworkConfig::new(Architecture::SmallCnn, 10, [1, 28, 28]),
            NetworkConfig::new(Architecture::SmallCnn, 2, [3, 12, 12]).with_norm(true),
        ] {
            let state = config.init(1, &device).unwrap().state();
            assert_eq!(NetworkConfig::guess(&state).unwrap(), config);
        }
        let mut other = StateDict::new();
        assert!(NetworkConfig::guess(&other).is_err());
        other.push("conv1.weight", vec![0, 0, 0, 0], vec![]);
        other.push("fc1.weight", vec![0, 0], vec![]);
        other.push("fc2.weight", vec![0, 0], vec![]);
        assert!(NetworkConfig::guess(&other).is_err());
    }
}
