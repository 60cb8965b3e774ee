//! Chunks verified at once, for readers and uploads that then take them apart in Python.

use pyo3::prelude::*;

use crate::chunk::{Header, HEADER_BYTES};
use crate::entry::is_chunk_data;
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

/// Return the byte of a memoryview's bytes up to which, from byte `start` on, whole user chunks follow each other whose CRCs
/// are right, and whose entries and records are as many as their headers say. Other threads run meanwhile.
#[pyfunction]
pub fn verified_end(py: Python<'_>, view: &Bound<'_, PyAny>, start: usize) -> PyResult<usize> {
    let (memory, place) = bytes_of(view)?;
    let bytes = memory.as_bytes(py).get(place).unwrap_or_default();
    Ok(py.detach(|| {
        let mut at = start;
        while let Some(end) = verified_chunk(bytes, at) {
            at = end;
        }
        at
    }))
}

/// Return the end of the chunk at byte `at`; None unless all of it is there and right. Tracking chunks are left to Python.
fn verified_chunk(bytes: &[u8], at: usize) -> Option<usize> {
    let header = Header::parse(bytes.get(at..)?)?;
    let start = at.checked_add(HEADER_BYTES + header.bloom_bytes)?;
    let data = start..start.checked_add(header.data_bytes)?;
    let end = data.end.checked_add(header.trailer_bytes)?;
    let content = bytes.get(data.clone())?;
    let is_right = header.is_user
        && end <= bytes.len()
        && crc32fast::hash(content) == header.crc
        && is_chunk_data(bytes, &data, header.entries, header.records);
    is_right.then_some(end)
}
