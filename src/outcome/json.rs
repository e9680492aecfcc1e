//! What all JSON forms share.

use serde::Serialize;

/// Returns `x` where JSON can hold it: a key that is absent says "not measured", a `NaN` is no JSON at all.
#[cfg(feature = "datasets")]
pub(super) fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

/// Returns `view` pretty-printed, in the order of its fields, ending in a line break.
pub(super) fn text(view: &impl Serialize) -> String {
    // Plain structs with string keys cannot fail to serialise; an empty object is still valid JSON.
    let mut text = serde_json::to_string_pretty(view).unwrap_or_else(|_| "{}".to_owned());
    text.push('\n');
    text
}
