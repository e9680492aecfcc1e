//! PTX text → [`Module`].

/// Why a text is not a module that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Line, from 1.
    pub line: u32,
    /// What is wrong, naming the instruction.
    pub message: String,
}

/// What the text says.
#[derive(Debug)]
pub struct Module {}

/// Parses a module.
///
/// # Errors
/// With the line, for anything unknown.
pub fn parse(_text: &str) -> Result<Module, Error> {
    todo!()
}
