//! Sentences of token ids, and a network that embeds them: muso knows neither. Trains, unlearns with three methods and
//! shows each beside training anew: accuracy on retained, forgotten and test rows, and a membership attack.

use muso::engine::{AnyEngine, CpuEngine};
use muso::evaluate::{Mia, MiaOutputs, Outputs};
use muso::features::{Batches, Feed};
use muso::methods::networks::{Entry, Task};
use muso::models::burn::module::Module;
use muso::models::burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use muso::models::burn::tensor::activation::relu;
use muso::models::burn::tensor::{Device, Int, Tensor, TensorData};
use muso::models::{FeatureNet, burn};
use muso::train::{Recipe, RowTargets, Rule, Session};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The mean of the words' embeddings, a hidden layer, and the head.
#[derive(Module, Debug)]
struct Classifier {
    words: Embedding,
    hidden: Linear,
    head: Linear,
}

impl FeatureNet for Classifier {
    type Input = Tensor<2, Int>;

    fn features(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let mean = self.words.forward(tokens).mean_dim(1).squeeze_dim(1);
        relu(self.hidden.forward(mean))
    }

    fn head(&self) -> &Linear {
        &self.head
    }
}

/// Sentences of eight words out of forty; their class is the topic that many of the words are of.
#[derive(Clone)]
struct Sentences {
    tokens: Vec<[i64; 8]>,
    labels: Vec<i64>,
}

fn sentences(count: usize, seed: u64) -> Sentences {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let labels: Vec<i64> = (0..count).map(|_| random.random_range(0..4)).collect();
    let mut word = |topic: i64| match random.random_bool(0.4) {
        true => random.random_range(10 * topic..10 * (topic + 1)),
        false => random.random_range(0..40),
    };
    let tokens = labels.iter().map(|&topic| [(); 8].map(|()| word(topic)));
    let tokens = tokens.collect();
    Sentences { tokens, labels }
}

impl Batches for Sentences {
    type Input = Tensor<2, Int>;

    fn labels(&self) -> &[i64] {
        &self.labels
    }

    fn inputs(&self, rows: &[usize], device: &Device) -> muso::Result<Tensor<2, Int>> {
        let tokens: Vec<i64> = rows.iter().flat_map(|&row| self.tokens[row]).collect();
        let data = TensorData::new(tokens, [rows.len(), 8]);
        Ok(Tensor::from_data(data, device))
    }
}

fn main() -> muso::Result<()> {
    let device = Device::flex();
    device.seed(7);
    let engine: AnyEngine = CpuEngine::new(None)?.into();
    let train = Feed::new(sentences(2_000, 1), &device);
    let test = Feed::new(sentences(500, 2), &device);
    let initial = Classifier {
        words: EmbeddingConfig::new(40, 16).init(&device),
        hidden: LinearConfig::new(16, 32).init(&device),
        head: LinearConfig::new(32, 4).init(&device),
    };
    let recipe = Recipe {
        epochs: 8,
        batch: 64,
        rule: Rule::Adam,
        learning_rate: 3e-3,
        ..Recipe::default()
    };
    let targets = RowTargets::new(train.data.labels(), 4);
    let all: Vec<usize> = (0..2_000).collect();
    let mut session = Session::new(initial.clone(), recipe.clone(), 1);
    session.run(&train, &all, &mut |step| targets.loss(step), &mut ())?;
    let original = session.network;

    // Most of the last topic goes.
    let goes = |row: &usize| train.data.labels[*row] == 3 && row % 10 > 0;
    let (forget, retain): (Vec<usize>, Vec<usize>) = all.into_iter().partition(goes);
    let rows: [&[usize]; 2] = [&retain, &forget];
    let task = Task::new(&train, rows, [&original, &initial], &recipe, &engine);
    let tested: Vec<usize> = (0..500).collect();
    let show = |name: &str, network: &Classifier| -> muso::Result<()> {
        let retained = Outputs::of(&train, network, &retain, &mut ())?;
        let forgotten = Outputs::of(&train, network, &forget, &mut ())?;
        let test = Outputs::of(&test, network, &tested, &mut ())?;
        let [ra, fa, ta] = [&retained, &forgotten, &test].map(Outputs::accuracy);
        let mia = Mia::Entropy.percent(&MiaOutputs {
            retained: &retained,
            test: &test,
            forgotten: &forgotten,
        })?;
        println!("{name:9} RA {ra:5.1}  FA {fa:5.1}  TA {ta:5.1}  MIA {mia:5.1}");
        Ok(())
    };
    show("original", &original)?;
    for name in ["retrain", "muso", "muso-s", "neg-grad"] {
        let method = Entry::find(name)?.with(Default::default())?;
        show(method.name(), &method.unlearn(&task, &mut ())?)?;
    }
    Ok(())
}
