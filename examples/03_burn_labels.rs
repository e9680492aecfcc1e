//! Optimal labels in a burn training loop of your own: they are recomputed while the retained rows are trained on.
//!
//! `cargo run --release --example 03_burn_labels`

use muso::engine::{CpuEngine, to_tensor};
use muso::models::burn::module::Module;
use muso::models::burn::nn::{Linear, LinearConfig};
use muso::models::burn::tensor::activation::{log_softmax, relu, softmax};
use muso::models::burn::tensor::{Device, Distribution, Int, Tensor};
use muso::models::{burn, params};
use muso::scheduler::LabelUpdates;

#[derive(Module, Debug)]
struct Net {
    hidden: Linear,
    head: Linear,
}

impl Net {
    fn features(&self, rows: Tensor<2>) -> Tensor<2> {
        relu(self.hidden.forward(rows))
    }

    /// One step of gradient descent on the cross-entropy against `targets`.
    fn step(self, rows: &Tensor<2>, targets: &Tensor<2>) -> Self {
        let net = self.train();
        let logits = net.head.forward(net.features(rows.clone()));
        let loss = -(log_softmax(logits, 1) * targets.clone()).sum_dim(1).mean();
        let gradients = params::gradients(&net, &loss.backward());
        let weights = params::weights(&net).into_iter().zip(gradients);
        let weights = weights.map(|(w, g)| w - g * 0.2).collect();
        params::with_weights(net.valid(), weights)
    }

    /// Percent of rows that are in their class.
    fn accuracy(&self, rows: &Tensor<2>, targets: &Tensor<2>) -> f32 {
        let class = |scores: Tensor<2>| scores.argmax(1);
        let logits = self.head.forward(self.features(rows.clone()));
        let right = class(logits).equal(class(targets.clone())).int().float();
        100.0 * right.mean().into_scalar::<f32>()
    }
}

/// Rows of three classes: noise, and one column that stands out.
fn rows(count: usize, device: &Device) -> (Tensor<2>, Tensor<2>) {
    let noise = Tensor::random([count, 6], Distribution::Normal(0.0, 1.0), device);
    let classes = Tensor::<1, Int>::arange(0..count as i64, device).remainder_scalar(3);
    let column = Tensor::<1, Int>::arange(0..6, device);
    let marks = classes.unsqueeze_dim::<2>(1).equal(column.unsqueeze_dim(0));
    let marks = marks.int().float();
    (noise + marks.clone() * 2.0, marks.narrow(1, 0, 3))
}

/// A network before and after training on all rows.
fn train(rows: [&Tensor<2>; 2], targets: [&Tensor<2>; 2], device: &Device) -> (Net, Net) {
    let [hidden, head] = [(6, 32), (32, 3)].map(|(i, o)| LinearConfig::new(i, o).init(device));
    let initial = Net { hidden, head };
    let [x, y] = [rows, targets].map(|parts| Tensor::cat(parts.map(Clone::clone).to_vec(), 0));
    let trained = (0..300).fold(initial.clone(), |net, _| net.step(&x, &y));
    (initial, trained)
}

fn main() -> muso::Result<()> {
    let device = Device::flex();
    device.seed(1);
    let [(x_r, y_r), (x_u, y_u)] = [200, 40].map(|count| rows(count, &device));
    let (initial, mut net) = train([&x_r, &x_u], [&y_r, &y_u], &device);
    println!("before: {:.1} % are known", net.accuracy(&x_u, &y_u));
    let engine = CpuEngine::new(None)?;
    let mut labels = LabelUpdates::new(&engine, &net.head, &initial.head).ridge(1e-6);
    let mut targets = y_u.clone();
    for _ in 0..30 {
        let (now, x) = (net.clone(), x_r.clone());
        let batches = (0..4).map(move |k| now.features(x.clone().narrow(0, 50 * k, 50)));
        labels.start(batches, [net.features(x_u.clone())])?;
        net = net.step(&x_r, &y_r); // while the labels are computed
        if let Some(new) = labels.wait()? {
            targets = softmax(to_tensor(&new, &device), 1);
        }
        net = net.step(&x_u, &targets);
    }
    println!("after:  {:.1} % are known", net.accuracy(&x_u, &y_u));
    Ok(())
}
