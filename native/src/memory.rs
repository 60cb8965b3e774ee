//! The bytes that a memoryview shows, without copying them if they belong to a `bytes` object.

use std::ops::Range;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Return bytes, and which of them the view shows. Of anything that may change meanwhile, a `bytearray`, it is a copy.
pub fn bytes_of(view: &Bound<'_, PyAny>) -> PyResult<(Py<PyBytes>, Range<usize>)> {
    if let Ok(whole) = view.getattr("obj")?.cast_into::<PyBytes>() {
        let buffer = PyBuffer::<u8>::get(view)?;
        let bytes = whole.as_bytes();
        let at = (buffer.buf_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize);
        let end = at.saturating_add(buffer.len_bytes());
        if buffer.is_c_contiguous() && end <= bytes.len() {
            return Ok((whole.unbind(), at..end));
        }
    }
    let copy = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    let size = copy.as_bytes().len();
    Ok((copy.unbind(), 0..size))
}
