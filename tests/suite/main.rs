//! The integration tests, in one binary because burn links slowly.
#![allow(missing_docs)]

mod engine;
mod parsers;
mod support;
mod theory;
