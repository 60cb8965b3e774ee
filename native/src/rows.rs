//! The rows of chunks, in batches, as Python calls for them. Arrow's own library then wraps the memory of the columns.

use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::columns::{Bytes, Integers, Maps, Piece, Validity, Values};
use crate::entry::SubBatch;
use crate::memory::bytes_of;
use crate::row::{Columns, Field, PropertiesColumn};
use crate::scan::{verify, Batch, Bounds, Declined, Scan, ScannedChunk, Step};
use crate::unpacked::unpack;

/// An array as Arrow's `from_buffers` takes it: length, validity or None, its other buffers, and its children.
type ArrayParts<'py> = (usize, Option<Bound<'py, PyBytes>>, Vec<Bound<'py, PyBytes>>, Vec<Bound<'py, PyAny>>);

/// Where a chunk's data begins and ends, its id, entries, records and timestamp.
type VerifiedChunk = (usize, usize, u64, u64, u64, i64);

/// Reads the rows of chunks that lie in one piece of memory.
#[pyclass(module = "_coldstream_native", name = "NativeRows")]
pub struct NativeRows {
    memory: Py<PyBytes>,
    next_offset: Option<u64>,
    scan: Scan,
    columns: Vec<String>,
    unpack: Py<PyAny>,
    ended: bool,
    declined: Option<Declined>,
}

#[pyclass(frozen, get_all, module = "_coldstream_native", name = "NativeBatch")]
pub struct NativeBatch {
    rows: usize,
    /// By name, the parts of the array; None for one that is null in all rows.
    columns: Py<PyDict>,
    /// The rows that are null, for Python to decide: number, offset, timestamp, message.
    declined: Py<PyList>,
}

#[pymethods]
impl NativeRows {
    /// Begin with a memoryview of whole chunks, the first with the id `first_offset`, and verify them all. If that was done
    /// before, `verified` says of each where its data begins and ends in the view, its id, entries, records and
    /// timestamp. The other numbers are those of `scan.rs`.
    #[new]
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (view, columns, unpack, *, verified, first_offset, start, end, earliest, latest, max_rows,
                        max_bytes, max_cell_bytes, max_declined))]
    fn new(
        py: Python<'_>,
        view: &Bound<'_, PyAny>,
        columns: Vec<String>,
        unpack: Py<PyAny>,
        verified: Option<Vec<VerifiedChunk>>,
        first_offset: u64,
        start: u64,
        end: u64,
        earliest: i64,
        latest: i64,
        max_rows: usize,
        max_bytes: usize,
        max_cell_bytes: usize,
        max_declined: usize,
    ) -> PyResult<Self> {
        let (memory, place) = bytes_of(view)?;
        let (chunks, next_offset) = match verified {
            None => {
                let bytes = memory.as_bytes(py);
                match py.detach(|| verify(bytes, place, first_offset, true)) {
                    Some((chunks, next_offset)) => (chunks, Some(next_offset)),
                    None => (Vec::new(), None),
                }
            }
            Some(all) => {
                let all = all.into_iter().enumerate().map(|(number, one)| {
                    let (at, end, chunk_id, entries, records, timestamp) = one;
                    let data = place.start.saturating_add(at)..place.start.saturating_add(end);
                    ScannedChunk { place: number, chunk_id, entries, records, timestamp, data, is_counted: None }
                });
                (all.collect(), None)
            }
        };
        let bounds = Bounds { start, end, earliest, latest, max_rows, max_bytes, max_cell_bytes, max_declined };
        let scan = Scan::new(chunks, bounds, Columns::of(&columns));
        Ok(Self { memory, next_offset, scan, columns, unpack, ended: false, declined: None })
    }

    /// Return the next batch; None if there is none, and then `declined` says whether Python has to go on.
    fn next_batch(&mut self, py: Python<'_>) -> PyResult<Option<NativeBatch>> {
        while !self.ended {
            match self.step(py)? {
                Step::Full => break,
                Step::End => self.ended = true,
                Step::Declined(declined) => {
                    self.ended = true;
                    self.declined = Some(declined);
                }
                Step::Packed(batch) => self.open(py, &batch)?,
            }
        }
        if self.scan.batch.rows() == 0 {
            return Ok(None);
        }
        let batch = self.scan.take_batch(Columns::of(&self.columns));
        NativeBatch::new(py, batch, self.memory.as_bytes(py)).map(Some)
    }

    /// Where Python goes on: in which chunk, by its number or, of those that were verified here, by the byte of the view
    /// where it begins; its id; and the first offset that is left. None if everything was read.
    #[getter]
    fn declined(&self) -> Option<(usize, u64, u64)> {
        self.declined.map(|declined| (declined.place, declined.chunk_id, declined.offset))
    }

    /// Let `next_batch` go on after the chunk that was declined.
    fn go_on(&mut self) {
        self.declined = None;
        self.ended = false;
    }

    /// The offset after the last chunk; None unless all were found to be right here.
    #[getter]
    fn next_offset(&self) -> Option<u64> {
        self.next_offset
    }
}

impl NativeRows {
    /// Run without the interpreter's lock, so that whoever fetches the next bytes can go on. A panic is an error.
    fn step(&mut self, py: Python<'_>) -> PyResult<Step> {
        let memory = self.memory.as_bytes(py);
        let scan = &mut self.scan;
        py.detach(|| catch_unwind(AssertUnwindSafe(|| scan.run(memory))))
            .map_err(|_| PyRuntimeError::new_err("the native module failed: please report it, with the chunk"))
    }

    fn open(&mut self, py: Python<'_>, batch: &SubBatch) -> PyResult<()> {
        let unpacked = unpack(py, &self.unpack, self.memory.as_bytes(py), batch)?;
        if let Some(Step::Declined(declined)) = self.scan.unpacked(batch, unpacked) {
            self.ended = true;
            self.declined = Some(declined);
        }
        Ok(())
    }
}

impl NativeBatch {
    fn new(py: Python<'_>, batch: Batch, memory: &[u8]) -> PyResult<Self> {
        let rows = batch.rows();
        let found = PyDict::new(py);
        let columns = &batch.columns;
        let none = Validity::default();
        let offsets: ArrayParts<'_> = (rows, validity(py, &none), vec![longs(py, &batch.offsets)?], Vec::new());
        found.set_item("offset", offsets)?;
        found.set_item("chunk_timestamp", integers(py, &batch.times)?)?;
        if let Some(column) = &columns.value {
            found.set_item("value", values(py, column, memory)?)?;
        }
        if let Some(column) = &columns.creation_time {
            found.set_item("creation_time", integers(py, column)?)?;
        }
        if let Some(column) = &columns.properties {
            found.set_item("properties", properties(py, column)?)?;
        }
        if let Some(column) = &columns.application_properties {
            found.set_item("application_properties", maps(py, column)?)?;
        }
        if let Some(column) = &columns.message_annotations {
            found.set_item("message_annotations", maps(py, column)?)?;
        }
        if let Some(column) = &columns.routing_key {
            found.set_item("routing_key", texts(py, column)?)?;
        }
        let declined = batch.declined.iter();
        let declined = declined.map(|one| (one.row, one.offset, one.timestamp, PyBytes::new(py, &one.message)));
        Ok(Self { rows, columns: found.unbind(), declined: PyList::new(py, declined.collect::<Vec<_>>())?.unbind() })
    }
}

fn validity<'py>(py: Python<'py>, column: &Validity) -> Option<Bound<'py, PyBytes>> {
    (column.nulls > 0).then(|| PyBytes::new(py, &column.bits))
}

fn ints<'py>(py: Python<'py>, numbers: &[i32]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, 4 * numbers.len(), |out| {
        for (place, number) in out.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        Ok(())
    })
}

fn longs<'py>(py: Python<'py>, numbers: &[i64]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, 8 * numbers.len(), |out| {
        for (place, number) in out.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        Ok(())
    })
}

fn is_null(column: &Validity) -> bool {
    column.nulls == column.rows
}

fn texts<'py>(py: Python<'py>, column: &Bytes) -> PyResult<Option<ArrayParts<'py>>> {
    if is_null(&column.validity) && column.validity.rows > 0 {
        return Ok(None);
    }
    let buffers = vec![ints(py, &column.offsets)?, PyBytes::new(py, &column.data)];
    Ok(Some((column.validity.rows, validity(py, &column.validity), buffers, Vec::new())))
}

fn integers<'py>(py: Python<'py>, column: &Integers) -> PyResult<Option<ArrayParts<'py>>> {
    if is_null(&column.validity) {
        return Ok(None);
    }
    let buffers = vec![longs(py, &column.values)?];
    Ok(Some((column.validity.rows, validity(py, &column.validity), buffers, Vec::new())))
}

fn properties<'py>(py: Python<'py>, column: &PropertiesColumn) -> PyResult<Option<ArrayParts<'py>>> {
    if is_null(&column.validity) {
        return Ok(None);
    }
    let fields = column.fields.iter().map(|field| {
        let parts = match field {
            Field::Text(column) | Field::Binary(column) => texts(py, column)?,
            Field::Time(column) | Field::Whole(column) => integers(py, column)?,
        };
        Ok(parts.into_pyobject(py)?.into_any())
    });
    let fields: PyResult<Vec<_>> = fields.collect();
    Ok(Some((column.validity.rows, validity(py, &column.validity), Vec::new(), fields?)))
}

fn maps<'py>(py: Python<'py>, column: &Maps) -> PyResult<Option<ArrayParts<'py>>> {
    if is_null(&column.validity) {
        return Ok(None);
    }
    let pair = vec![texts(py, &column.keys)?.into_pyobject(py)?, texts(py, &column.items)?.into_pyobject(py)?];
    let pairs: ArrayParts<'py> = (column.keys.validity.rows, None, Vec::new(), pair);
    let children = vec![pairs.into_pyobject(py)?.into_any()];
    Ok(Some((column.validity.rows, validity(py, &column.validity), vec![ints(py, &column.offsets)?], children)))
}

/// Copy the values to where they follow each other: the only copy that is made of those that were not packed.
fn values<'py>(py: Python<'py>, column: &Values, memory: &[u8]) -> PyResult<Option<ArrayParts<'py>>> {
    let mut valid = Validity::default();
    let mut offsets = Vec::with_capacity(column.pieces.len() + 1);
    let mut size = 0usize;
    offsets.push(0);
    for piece in &column.pieces {
        size += match piece {
            Piece::Scanned(start, end) | Piece::Own(start, end) => end - start,
            Piece::Null => 0,
        };
        valid.push(!matches!(piece, Piece::Null));
        offsets.push(size as i32);
    }
    if is_null(&valid) {
        return Ok(None);
    }
    let data = PyBytes::new_with(py, size, |out| {
        let mut left = out;
        for piece in &column.pieces {
            let content = match piece {
                Piece::Scanned(start, end) => memory.get(*start..*end),
                Piece::Own(start, end) => column.own.get(*start..*end),
                Piece::Null => None,
            };
            let content = content.unwrap_or_default();
            let Some((place, after)) = left.split_at_mut_checked(content.len()) else {
                break;
            };
            place.copy_from_slice(content);
            left = after;
        }
        Ok(())
    })?;
    Ok(Some((valid.rows, validity(py, &valid), vec![ints(py, &offsets)?, data], Vec::new())))
}
