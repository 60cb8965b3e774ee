//! The messages of a chunk, one after another.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::decoder::MessageTypes;
use crate::entry::{is_sub_batch_data, message_at, Entry, SubBatch};
use crate::memory::bytes_of;
use crate::message::{ChunkContext, NativeMessage};
use crate::unpacked::unpack;

/// Iterates over the messages of a chunk from an offset on. What is wrong in the chunk, or only uncommon, ends the native
/// part: from there on the iterator is `rest`, which is called with the offset of the message that comes next.
///
/// Entries are counted on the way. To count them all beforehand would fetch each one's header from memory, before the
/// message that lies around it is needed.
#[pyclass(module = "_coldstream_native", name = "NativeMessages")]
pub struct NativeMessages {
    context: Arc<ChunkContext>,
    memory: Py<PyBytes>,
    at: usize,
    end: usize,
    offset: u64,
    next_offset: u64,
    entries_left: u64,
    from_offset: u64,
    batch: Option<OpenSubBatch>,
    rest: Py<PyAny>,
    in_python: Option<Py<PyAny>>,
}

/// A sub-batch whose messages come next, in the chunk's memory unless it was packed.
struct OpenSubBatch {
    unpacked: Option<Vec<u8>>,
    at: usize,
    end: usize,
}

#[pymethods]
impl NativeMessages {
    /// Begin with the data of a chunk, a memoryview, which a header says has so many entries and records.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        types: Py<MessageTypes>,
        data: &Bound<'_, PyAny>,
        entries: u64,
        records: u64,
        chunk_id: u64,
        timestamp: i64,
        source: Py<PyString>,
        from_offset: u64,
        rest: Py<PyAny>,
    ) -> PyResult<Self> {
        let (memory, place) = bytes_of(data)?;
        Ok(Self {
            context: Arc::new(ChunkContext { types, source, timestamp }),
            memory,
            at: place.start,
            end: place.end,
            offset: chunk_id,
            next_offset: chunk_id.saturating_add(records),
            entries_left: entries,
            from_offset,
            batch: None,
            rest,
            in_python: None,
        })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.in_python.is_none() {
            if let Some(message) = self.next_message(py)? {
                return Ok(Some(Bound::new(py, message)?.into_any()));
            }
        }
        match &self.in_python {
            Some(rest) => rest.bind(py).try_iter()?.next().transpose(),
            None => Ok(None),
        }
    }
}

impl NativeMessages {
    fn next_message(&mut self, py: Python<'_>) -> PyResult<Option<NativeMessage>> {
        loop {
            if let Some(batch) = &mut self.batch {
                let bytes = batch.unpacked.as_deref().unwrap_or_else(|| self.memory.as_bytes(py));
                while let Some(place) = message_at(bytes, batch.at, batch.end) {
                    let offset = self.offset;
                    batch.at = place.end;
                    self.offset += 1;
                    if let Some(raw) = bytes.get(place).filter(|_| offset >= self.from_offset) {
                        return Ok(Some(NativeMessage::new(py, offset, raw, &self.context)));
                    }
                }
                self.batch = None;
            }
            if self.at == self.end && self.entries_left == 0 && self.offset == self.next_offset {
                return Ok(None);
            }
            let bytes = self.memory.as_bytes(py);
            // An empty sub-batch is for Python to look into: it takes no offset, and may be damaged.
            let entry =
                Entry::at(bytes, self.at, self.end).filter(|entry| entry.records() > 0 && self.entries_left > 0);
            let Some(entry) = entry.filter(|entry| entry.records() <= self.next_offset - self.offset) else {
                self.go_on_in_python(py)?;
                return Ok(None);
            };
            let after = self.offset + entry.records();
            self.at = entry.end();
            self.entries_left -= 1;
            match entry {
                Entry::Message(place) => {
                    let offset = self.offset;
                    self.offset = after;
                    if let Some(raw) = bytes.get(place).filter(|_| offset >= self.from_offset) {
                        return Ok(Some(NativeMessage::new(py, offset, raw, &self.context)));
                    }
                }
                Entry::SubBatch(_) if after <= self.from_offset => self.offset = after,
                Entry::SubBatch(batch) => {
                    self.batch = self.open(py, &batch)?;
                    if self.batch.is_none() {
                        self.go_on_in_python(py)?;
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn go_on_in_python(&mut self, py: Python<'_>) -> PyResult<()> {
        self.in_python = Some(self.rest.call1(py, (self.offset,))?);
        Ok(())
    }

    /// Unpack a sub-batch, and check all of it: none of its messages may come before what is wrong with it is known.
    fn open(&self, py: Python<'_>, batch: &SubBatch) -> PyResult<Option<OpenSubBatch>> {
        let memory = self.memory.as_bytes(py);
        let unpacked = match batch.compression {
            0 => None,
            _ => match unpack(py, &self.context.types.get().unpack, memory, batch)? {
                Some(unpacked) => Some(unpacked),
                None => return Ok(None),
            },
        };
        let place = unpacked.as_ref().map_or(batch.content.clone(), |unpacked| 0..unpacked.len());
        let is_right = is_sub_batch_data(unpacked.as_deref().unwrap_or(memory), &place, batch.records);
        Ok(is_right.then_some(OpenSubBatch { unpacked, at: place.start, end: place.end }))
    }
}
