//! How the new head is to be found: objective, source, ridge and route, with every default made definite.

use super::input::Input;
use super::request::{Objective, Params, Source};
use crate::engine::SumsSpec;
use crate::error::{Error, Result};
use crate::gram::Route;

/// A request without anything left open.
pub(super) struct Plan {
    pub(super) objective: Objective,
    pub(super) source: Source,
    pub(super) ridge: f64,
    pub(super) route: Route,
    pub(super) spec: SumsSpec,
    /// The ridge leaves the bias out.
    pub(super) free_bias: bool,
    /// Sums in integers, and the solve whose bytes are the same everywhere.
    pub(super) exact: bool,
}

impl Plan {
    pub(super) fn new(params: &Params<'_>, input: &Input<'_>) -> Result<Self> {
        let order = input.trained.rows();
        let by_shape = Route::choose(input.retained(), order);
        let objective = params.objective.unwrap_or(match by_shape {
            Route::Dual if params.ridge.is_none_or(|ridge| ridge == 0.0) => Objective::Interpolate,
            _ => Objective::Ridge,
        });
        let source = params.source.unwrap_or(match objective {
            Objective::Ridge => Source::Labels,
            Objective::Interpolate => Source::Head,
        });
        let ridge = match (params.ridge, objective) {
            (Some(ridge), _) if !(ridge >= 0.0 && ridge.is_finite()) => {
                return Err(Error::Parameter {
                    name: "`.ridge`",
                    value: ridge.to_string(),
                    expected: "a finite number that is not negative".into(),
                });
            }
            // Adding 0 turns −0 into 0.
            (Some(ridge), _) => ridge + 0.0,
            (None, Objective::Interpolate) => 0.0,
            (None, Objective::Ridge) => {
                return Err(Error::Missing {
                    name: "`.ridge`",
                    expected: "the ridge that the head was trained with; the result depends on it"
                        .into(),
                });
            }
        };
        let labels_needed =
            source == Source::Labels || objective == Objective::Ridge || params.verify;
        if labels_needed && input.targets() == 0 {
            match (&params.sums, &params.rows) {
                (Some(sums), _) => {
                    return Err(Error::format(
                        &sums.name,
                        "the sums were made without labels, which this needs",
                        "sums over rows with `labels` or `targets`; only `.objective = interpolate` with `.source = head` needs none",
                    ));
                }
                (None, Some(_)) => {
                    return Err(Error::format(
                        input.rows()?.name(),
                        "it has neither `labels` nor `targets`, which this needs",
                        "one of them, or `.labels`; only `.objective = interpolate` with `.source = head` and without `.verify` needs none",
                    ));
                }
                (None, None) => {}
            }
        }
        if let Some(sums) = &params.sums {
            let fault = |problem: String, expected: &str| {
                Err(Error::selection(&sums.name, problem, expected))
            };
            if by_shape == Route::Dual && ridge == 0.0 {
                let rows = input.retained();
                fault(
                    format!(
                        "{rows} rows are retained, fewer than the order {order} of G, which without a ridge needs the rows"
                    ),
                    "`.ridge` above 0, or `.features` without `.sums`",
                )?;
            }
            let from_forgotten = objective == Objective::Ridge && source == Source::Head;
            if from_forgotten && input.forgotten() == 0 {
                fault(
                    "no row in it is forgotten, and `.source = head` goes by those rows".into(),
                    "sums made with `.forget`, or `.features` and `.forget` beside `.sums`",
                )?;
            }
        }
        let in_sums = input.shard.as_ref().map(|shard| shard.exact.is_some());
        let exact = in_sums.unwrap_or(params.exact.is_some());
        if exact && input.shard.is_none() && by_shape == Route::Dual && ridge == 0.0 {
            let rows = input.retained();
            return Err(Error::selection(
                "`.exact`",
                format!(
                    "{rows} rows are retained, fewer than the order {order} of G: without a ridge that takes the matrix of \
                     their inner products, of which there are no exact sums"
                ),
                "`.ridge` above 0, or no `.exact`",
            ));
        }
        if params.free_bias {
            free_bias_is_sound(input, objective)?;
        }
        // The head-based ridge update needs the forgotten rows' sums, whatever the number of retained rows.
        let route = match (objective, source) {
            (Objective::Ridge, Source::Head) => Route::Primal,
            _ if params.free_bias => Route::Primal,
            _ if input.shard.is_some() || exact => Route::Primal,
            _ => by_shape,
        };
        Ok(Self {
            objective,
            source,
            ridge,
            route,
            spec: SumsSpec {
                features: input.head.weight.cols(),
                bias: input.head.bias.is_some(),
                targets: input.targets(),
            },
            free_bias: params.free_bias,
            exact,
        })
    }
}

/// Refuses a bias to leave free that is not there, or that no ridge holds in any case.
fn free_bias_is_sound(input: &Input<'_>, objective: Objective) -> Result<()> {
    if input.head.bias.is_none() {
        return Err(Error::selection(
            "`.free_bias`",
            format!("{} has no bias", input.head.name()),
            "a head with a bias, or no `.free_bias`",
        ));
    }
    match objective {
        Objective::Ridge => Ok(()),
        Objective::Interpolate => Err(Error::selection(
            "`.free_bias`",
            "an interpolating fit is the one nearest to the initial head, bias included",
            "`.objective = ridge`, or no `.free_bias`",
        )),
    }
}
