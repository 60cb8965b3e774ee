//! Sub-batches unpacked by Python, which has the codecs and their limits.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::entry::SubBatch;

/// Return what is in a sub-batch; None if Python's `unpack` says that it cannot be unpacked.
pub fn unpack(py: Python<'_>, with: &Py<PyAny>, memory: &[u8], batch: &SubBatch) -> PyResult<Option<Vec<u8>>> {
    let Some(packed) = memory.get(batch.content.clone()) else {
        return Ok(None);
    };
    let found = with.bind(py).call1((batch.compression, PyBytes::new(py, packed), batch.uncompressed_bytes))?;
    if let Ok(unpacked) = found.cast::<PyBytes>() {
        return Ok(Some(unpacked.as_bytes().to_vec()));
    }
    Ok(found.cast::<PyByteArray>().ok().map(|unpacked| unpacked.to_vec()))
}
