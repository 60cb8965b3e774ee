//! Chunks verified at once, for readers that then take them apart in Python.

use pyo3::prelude::*;

use crate::memory::bytes_of;
use crate::scan::verify;

/// Verify the whole chunks that a memoryview shows, the first with the id `first_offset`. Return the offset after the last
/// one; None if anything is wrong. Other threads run meanwhile.
#[pyfunction]
pub fn verified_to(py: Python<'_>, view: &Bound<'_, PyAny>, first_offset: u64) -> PyResult<Option<u64>> {
    let (memory, place) = bytes_of(view)?;
    let bytes = memory.as_bytes(py);
    Ok(py.detach(|| verify(bytes, place, first_offset, false)).map(|(_, next_offset)| next_offset))
}
