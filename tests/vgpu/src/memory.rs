//! Device memory and what is known of each byte.
//!
//! Allocations live at device addresses that are never given out again, with a gap between neighbours, so that an
//! address tells whether it is in bounds, past an end or freed. Every allocation has a shadow that remembers which
//! bytes were written.

use crate::check::Finding;

/// All memory of the device.
#[derive(Debug)]
pub struct Memory {}

/// Why memory could not be had or given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// More than the device has.
    OutOfMemory {
        /// Bytes asked for.
        asked: u64,
        /// Bytes left.
        free: u64,
    },
    /// Not the start of a live allocation.
    NotAllocated {
        /// The address given.
        address: u64,
    },
}

impl Memory {
    /// Memory of `capacity` bytes, all free.
    pub fn new(_capacity: u64) -> Self {
        todo!()
    }

    /// Reserves `bytes`, aligned to 512; contents are uninitialised.
    pub fn allocate(&self, _bytes: u64) -> Result<u64, MemoryError> {
        todo!()
    }

    /// Frees the allocation that starts at `address`.
    pub fn free(&self, _address: u64) -> Result<(), MemoryError> {
        todo!()
    }

    /// Base and size of the live allocation that `address` lies in.
    pub fn range(&self, _address: u64) -> Option<(u64, u64)> {
        todo!()
    }

    /// Bytes free and in all.
    pub fn info(&self) -> (u64, u64) {
        todo!()
    }

    /// Copies from the host; the bytes are initialised from then on.
    pub fn write(&self, _address: u64, _bytes: &[u8]) -> Result<(), Box<Finding>> {
        todo!()
    }

    /// Copies to the host. Reading what nothing has written is a finding too, returned after the copy was made.
    pub fn read(&self, _address: u64, _bytes: &mut [u8]) -> Result<(), Box<Finding>> {
        todo!()
    }

    /// Copies within the device, shadow included: copying uninitialised bytes is no defect, using them is.
    pub fn copy(&self, _to: u64, _from: u64, _bytes: u64) -> Result<(), Box<Finding>> {
        todo!()
    }

    /// Fills `count` elements with `pattern` (1, 2 or 4 bytes).
    pub fn fill(&self, _address: u64, _pattern: &[u8], _count: u64) -> Result<(), Box<Finding>> {
        todo!()
    }
}
