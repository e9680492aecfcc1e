//! The integration tests, in one binary because burn links slowly.
// `allow-unwrap-in-tests` covers test functions but not what they call.
#![allow(missing_docs, clippy::unwrap_used)]

mod audit;
mod cli;
mod core;
mod engine;
mod exact;
mod forge;
#[cfg(feature = "nn")]
mod fuzz;
mod gpu;
mod images;
#[cfg(feature = "nn")]
mod labels;
mod layout;
#[cfg(feature = "nn")]
mod methods;
#[cfg(feature = "nn")]
mod networks;
mod packages;
mod parsers;
mod readme;
#[cfg(feature = "nn")]
mod scheduler;
mod support;
mod table1;
mod theory;
mod words;
