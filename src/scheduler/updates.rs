//! Label updates beside training: the optimal labels of the forgotten rows, recomputed while a network changes.
//!
//! One update is a chain of its own: features of the retained rows → sums (SYRK) → factor and solve → product with the
//! features of the forgotten rows. Training needs its result only before the next batch that holds a forgotten row
//! (staleness 0) or one update later (staleness 1, double buffering). [`LabelUpdates`] runs the chain on a lane and hands
//! the labels over when they are due.
//!
//! ```
//! use muso::engine::{CpuEngine, to_tensor};
//! use muso::models::burn::nn::LinearConfig;
//! use muso::models::burn::tensor::{Device, Distribution, Tensor};
//! use muso::scheduler::LabelUpdates;
//! # fn main() -> muso::Result<()> {
//! let device = Device::flex();
//! let engine = CpuEngine::new(None)?;
//! // w_p and w_init: the heads of the trained network and of the one that training started from.
//! let [head_p, head_0] = [(); 2].map(|()| LinearConfig::new(8, 3).init(&device));
//! let mut labels = LabelUpdates::new(&engine, &head_p, &head_0).ridge(1e-6);
//! for _round in 0..3 {
//!     // Feature rows of the network as it is: the retained rows in batches, computed when they are asked for.
//!     let random = |rows: usize| Tensor::<2>::random([rows, 8], Distribution::Default, &Device::flex());
//!     labels.start((0..4).map(move |_| random(64)), [random(5)])?;
//!     // Batches without forgotten rows can be trained on here.
//!     if let Some(new) = labels.wait()? {
//!         let targets = to_tensor(&new, &device);
//!         assert_eq!(targets.dims(), [5, 3]);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use muso_models::burn::nn::Linear;
use muso_models::burn::tensor::{Device, Tensor};

use super::{Lane, Scheduler};
use crate::engine::{Engine, Matrix, SumsSpec, Targets, head_matrix, with_rows};
use crate::error::{Error, Result};
use crate::features::{Passed, host};
use crate::gram::{Gram, GramBuilder, Route};
use crate::labels::{
    Projector, Release, ReleasedProjector, VitalSigns, label_weights, relative_to,
};

/// A batch of feature rows, [N, D], or the error that was there in its place. What
/// [`Feed::deferred_pass`](crate::features::Feed::deferred_pass) yields is one.
pub trait FeatureRows {
    /// Returns the tensor, or the error.
    fn features(self) -> Result<Tensor<2>>;
}

impl FeatureRows for Tensor<2> {
    fn features(self) -> Result<Tensor<2>> {
        Ok(self)
    }
}

impl FeatureRows for Passed {
    fn features(self) -> Result<Tensor<2>> {
        Ok(self.features)
    }
}

impl<T: FeatureRows> FeatureRows for Result<T> {
    fn features(self) -> Result<Tensor<2>> {
        self?.features()
    }
}

/// Computes optimal labels ỹ_u = Z_u(W* + w_p) − y_ref beside the training of a network, update after update.
///
/// See the [module's text](self) for an example. Dropping it stops what is still being computed.
pub struct LabelUpdates<E: Engine + Clone + 'static> {
    heads: Arc<Heads<E>>,
    scheduler: Scheduler,
    ridge: f64,
    release: Option<Release>,
    staleness: usize,
    reference: Option<Arc<Matrix>>,
    /// W* + w_p and the projector's signs of the labels that were handed over last.
    behind: Option<(Matrix, VitalSigns)>,
    /// Updates that were started.
    started: u64,
    /// Set once labels have been handed over.
    any: bool,
    /// Updates whose labels have not been handed over, oldest first.
    pending: VecDeque<Pending>,
}

impl<E: Engine + Clone + 'static> LabelUpdates<E> {
    /// Takes w_p and w_init from the heads of the trained network and of the one that its training started from.
    ///
    /// λ is 1e-6, the staleness 0, and the lanes are those of [`Scheduler::default`].
    ///
    /// # Panics
    /// If the heads are of different shapes.
    pub fn new(engine: &E, trained: &Linear, initial: &Linear) -> Self {
        let (trained, initial) = (head_matrix(trained), head_matrix(initial));
        let shape = |head: &Matrix| (head.rows(), head.cols());
        assert_eq!(shape(&trained), shape(&initial), "heads of the same shape");
        Self {
            heads: Arc::new(Heads {
                engine: engine.clone(),
                trained,
                initial,
            }),
            scheduler: Scheduler::default(),
            ridge: 1e-6,
            release: None,
            staleness: 0,
            reference: None,
            behind: None,
            started: 0,
            any: false,
            pending: VecDeque::new(),
        }
    }

    /// Sets λ, by which the projector is damped.
    pub fn ridge(mut self, ridge: f64) -> Self {
        self.set_ridge(ridge);
        self
    }

    /// Sets λ of the updates that are started from now on.
    pub fn set_ridge(&mut self, ridge: f64) {
        self.ridge = ridge;
    }

    /// Has the projector made as a version of the authors' code makes it, in f32, instead of exactly; `None` is exact.
    /// N×D features and N×N values of the retained rows are then held in memory.
    pub fn release(mut self, release: Option<Release>) -> Self {
        self.release = release;
        self
    }

    /// Sets y_ref, N_u×C: one-hot labels, or the original network's logits of the forgotten rows.
    ///
    /// Where it is not set, it is Z_u w_p of the first update: the original network's logits, if the network has not
    /// changed by then.
    pub fn reference(mut self, reference: Matrix) -> Self {
        self.reference = Some(Arc::new(reference));
        self
    }

    /// Sets how many updates late labels are handed over: 0, or 1 to compute them while training goes on with those of
    /// the update before.
    ///
    /// # Panics
    /// If it is neither 0 nor 1.
    pub fn staleness(mut self, staleness: usize) -> Self {
        assert!(staleness <= 1, "staleness {staleness}; expected 0 or 1");
        self.staleness = staleness;
        self
    }

    /// Sets the lanes: with depth 0 every update is computed when it is started.
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.scheduler = scheduler;
        self
    }

    /// Starts an update from the features of the network as it is now.
    ///
    /// `retained` are batches of Z_r, which are taken one by one and not kept; `forgotten` are batches of Z_u, of the same
    /// rows in the same order in every update, taken after the sums are complete. Both are iterated in another thread.
    ///
    /// # Errors
    /// If there is no thread to be had; with depth 0, those of the computation.
    pub fn start<R, U>(&mut self, retained: R, forgotten: U) -> Result<()>
    where
        R: IntoIterator<Item: FeatureRows> + Send + 'static,
        U: IntoIterator<Item: FeatureRows> + Send + 'static,
    {
        if self.scheduler.depth == 0 {
            return self.compute(retained, forgotten);
        }
        let (update, heads) = (self.next_update()?, self.heads.clone());
        let work = std::iter::once_with(move || heads.labels(&update, retained, forgotten));
        let lane = self.scheduler.lane("labels", work)?;
        self.pending.push_back(Pending::Lane(lane));
        Ok(())
    }

    /// Computes an update as [`start`](Self::start) does, but in the calling thread: it returns when the labels are
    /// there.
    ///
    /// # Errors
    /// Those of the iterators and of the solve.
    pub fn compute(
        &mut self,
        retained: impl IntoIterator<Item: FeatureRows>,
        forgotten: impl IntoIterator<Item: FeatureRows>,
    ) -> Result<()> {
        let update = self.next_update()?;
        let heads = &self.heads;
        let made = self.scheduler.step("labels", update.number, || {
            heads.labels(&update, retained, forgotten)
        })?;
        self.pending.push_back(Pending::Here(made));
        Ok(())
    }

    /// Lets a round pass without an update of its own: with staleness 1, the labels of the round before become due. The
    /// last round of a run has no use for new ones.
    pub fn skip(&mut self) {
        self.pending.push_back(Pending::Nothing);
    }

    /// Finds out, without waiting, whether an update that is under way has failed.
    ///
    /// # Errors
    /// Those of the update.
    pub fn check(&mut self) -> Result<()> {
        for pending in &mut self.pending {
            pending.check()?;
        }
        Ok(())
    }

    /// Waits for the labels that are due, N_u×C, and hands them over. There are none where nothing new is due: the labels
    /// of before are still the ones to use.
    ///
    /// With staleness 0, the labels of the newest update are due. With staleness 1 it is those of the one before it, but
    /// for the first, which has none before it.
    ///
    /// # Errors
    /// Those of the update.
    pub fn wait(&mut self) -> Result<Option<Matrix>> {
        let early = if self.any { self.staleness } else { 0 };
        let mut newest = None;
        while self.pending.len() > early {
            if let Some(labels) = self.settle()? {
                newest = Some(labels);
            }
        }
        self.any |= newest.is_some();
        Ok(newest)
    }

    /// Returns W* + w_p, (D+1)×C, behind the labels that were handed over last: Z_u(W* + w_p) − y_ref are labels of
    /// other features by the same update.
    pub fn weights(&self) -> Option<&Matrix> {
        self.behind.as_ref().map(|(weights, _)| weights)
    }

    /// Returns the vital signs of the projector behind the labels that were handed over last.
    pub fn vital_signs(&self) -> Option<VitalSigns> {
        self.behind.as_ref().map(|(_, signs)| *signs)
    }

    /// Waits for the oldest update.
    fn settle(&mut self) -> Result<Option<Matrix>> {
        let made = match self.pending.pop_front() {
            Some(Pending::Here(made)) => Some(made),
            Some(Pending::Lane(mut lane)) => lane.next().transpose()?,
            Some(Pending::Nothing) | None => None,
        };
        Ok(made.map(|made| {
            if self.reference.is_none() {
                self.reference = made.reference.map(Arc::new);
            }
            self.behind = Some((made.weights, made.signs));
            made.labels
        }))
    }

    fn next_update(&mut self) -> Result<Update> {
        // The first update gives the others their reference.
        while self.reference.is_none()
            && let Some(first) = self.pending.front_mut()
        {
            first.complete()?;
            match first {
                Pending::Here(made) => self.reference = made.reference.take().map(Arc::new),
                _ => break,
            }
        }
        let update = Update {
            number: self.started,
            ridge: self.ridge,
            release: self.release,
            reference: self.reference.clone(),
            scheduler: self.scheduler.clone(),
        };
        self.started += 1;
        Ok(update)
    }
}

impl<E: Engine + Clone + 'static> fmt::Debug for LabelUpdates<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LabelUpdates")
            .field("ridge", &self.ridge)
            .field("release", &self.release)
            .field("staleness", &self.staleness)
            .field("started", &self.started)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

/// Labels of an update with what they were made of, and Z_u w_p if it had no reference yet.
struct Made {
    labels: Matrix,
    weights: Matrix,
    signs: VitalSigns,
    reference: Option<Matrix>,
}

enum Pending {
    Nothing,
    Here(Made),
    Lane(Lane<Made>),
}

impl Pending {
    /// Returns the error of the update, if it is known by now to have failed.
    fn check(&mut self) -> Result<()> {
        if let Self::Lane(lane) = self
            && let Some(made) = lane.ready()
        {
            *self = Self::Here(made?);
        }
        Ok(())
    }

    /// Waits for the labels, which stay here.
    fn complete(&mut self) -> Result<()> {
        if let Self::Lane(lane) = self {
            *self = match lane.next().transpose()? {
                Some(made) => Self::Here(made),
                None => Self::Nothing,
            };
        }
        Ok(())
    }
}

/// What the projector of an update is made of.
enum Sums {
    Exact(Gram),
    Released(Release, Vec<f32>),
}

/// State of one update.
struct Update {
    number: u64,
    ridge: f64,
    release: Option<Release>,
    reference: Option<Arc<Matrix>>,
    scheduler: Scheduler,
}

/// State that all updates share.
struct Heads<E> {
    engine: E,
    /// w_p, the trained head, (D+1)×C.
    trained: Matrix,
    /// w_init, the head before training, (D+1)×C.
    initial: Matrix,
}

impl<E: Engine> Heads<E> {
    fn labels(
        &self,
        update: &Update,
        retained: impl IntoIterator<Item: FeatureRows>,
        forgotten: impl IntoIterator<Item: FeatureRows>,
    ) -> Result<Made> {
        let sums = match update.release {
            Some(release) => Sums::Released(release, self.rows(retained)?),
            None => Sums::Exact(self.gram(retained, &update.scheduler)?),
        };
        // A lane of features is ahead by some batches when the weights are there.
        let forgotten = forgotten.into_iter();
        let (weights, signs) = update
            .scheduler
            .step("solve", update.number, || match sums {
                Sums::Exact(gram) => {
                    let projector = Projector::new(&self.engine, gram, update.ridge)?;
                    let weights = label_weights(&projector, &self.trained, &self.initial)?;
                    Ok((weights, projector.vital_signs()?))
                }
                Sums::Released(release, rows) => {
                    let width = self.trained.rows();
                    let projector = ReleasedProjector::new(release, &rows, width, update.ridge)?;
                    let weights = projector.label_weights(&self.trained, &self.initial);
                    Ok((weights, projector.vital_signs()))
                }
            })?;
        let classes = weights.cols();
        let (mut outputs, mut original) = (Vec::new(), Vec::new());
        for batch in forgotten {
            let features = self.checked(batch)?;
            self.project(&features, &weights, &mut outputs)?;
            if update.reference.is_none() {
                self.project(&features, &self.trained, &mut original)?;
            }
        }
        let matrix = |values: Vec<f64>| Matrix::from_vec(values.len() / classes, classes, values);
        let outputs = matrix(outputs);
        let first = match update.reference {
            None => Some(matrix(original)),
            Some(_) => None,
        };
        let reference = match (&update.reference, &first) {
            (Some(reference), _) => reference,
            (None, Some(first)) => first,
            (None, None) => unreachable!("one of the two is made above"),
        };
        if reference.rows() != outputs.rows() || reference.cols() != classes {
            return Err(Error::Shape {
                what: "reference of the labels".into(),
                found: format!("{}×{}", reference.rows(), reference.cols()),
                expected: format!("{}×{classes}", outputs.rows()),
            });
        }
        Ok(Made {
            labels: relative_to(&outputs, reference),
            weights,
            signs,
            reference: first,
        })
    }

    /// Collects the retained rows on the host, each with a one for the bias.
    fn rows(&self, retained: impl IntoIterator<Item: FeatureRows>) -> Result<Vec<f32>> {
        let width = self.trained.rows() - 1;
        let mut out = Vec::new();
        for batch in retained {
            for row in host(self.checked(batch)?).chunks_exact(width) {
                out.extend_from_slice(row);
                out.push(1.0);
            }
        }
        Ok(out)
    }

    /// Sums over the retained rows, made as they come. Fewer rows than features are kept instead (the dual route), and
    /// how many there are shows only as they come.
    fn gram(
        &self,
        retained: impl IntoIterator<Item: FeatureRows>,
        scheduler: &Scheduler,
    ) -> Result<Gram> {
        let spec = SumsSpec {
            features: self.trained.rows() - 1,
            bias: true,
            targets: 0,
        };
        let (mut rows, mut number) = (0, 0);
        let mut held = Vec::new();
        let mut builder = None;
        let mut add = |builder: &mut GramBuilder<'_, E>, held: &mut Vec<Tensor<2>>| {
            for features in held.drain(..) {
                scheduler.step("gram", number, || builder.update(&features, Targets::None))?;
                number += 1;
            }
            Ok::<(), Error>(())
        };
        for batch in retained {
            let features = self.checked(batch)?;
            rows += features.dims()[0] as u64;
            held.push(features);
            let route = Route::choose(rows, spec.order());
            if route == Route::Primal {
                let builder = match &mut builder {
                    Some(builder) => builder,
                    none => none.insert(GramBuilder::new(&self.engine, route, spec)?),
                };
                add(builder, &mut held)?;
            }
        }
        let mut builder = match builder {
            Some(builder) => builder,
            None => GramBuilder::new(&self.engine, Route::Dual, spec)?,
        };
        add(&mut builder, &mut held)?;
        builder.finish()
    }

    fn checked(&self, batch: impl FeatureRows) -> Result<Tensor<2>> {
        let features = batch.features()?;
        let (width, expected) = (features.dims()[1], self.trained.rows() - 1);
        if width == expected {
            return Ok(features);
        }
        Err(Error::Shape {
            what: "feature rows".into(),
            found: format!("{width} columns"),
            expected: format!("{expected}, the inputs of the head"),
        })
    }

    fn project(&self, features: &Tensor<2>, weights: &Matrix, out: &mut Vec<f64>) -> Result<()> {
        append_product(&self.engine, features, weights, out)
    }
}

/// Appends Z W. On the processor in f64; on other devices features stay there, and what comes back is f32.
pub(crate) fn append_product<E: Engine>(
    engine: &E,
    features: &Tensor<2>,
    weights: &Matrix,
    out: &mut Vec<f64>,
) -> Result<()> {
    if features.device() == Device::flex() {
        let product = with_rows(features, |rows| engine.project(rows, weights))?;
        out.extend_from_slice(product.as_slice());
    } else {
        let product = engine.project_tensor(features, weights)?;
        with_rows(&product, |rows| {
            out.extend_from_slice(rows.to_matrix().as_slice());
            Ok(())
        })?;
    }
    Ok(())
}
