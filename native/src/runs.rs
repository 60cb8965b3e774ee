//! Runs of entries to publish again, by the rules of `coldstream/format/entry_run.py`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::entry::{message_at, Entry};
use crate::memory::bytes_of;

const MAX_MESSAGE_BYTES: usize = (1 << 31) - 1;

/// How many records a run has, the bytes of the data where it begins and ends, and whether it is a sub-batch.
type Run = (u64, usize, usize, bool);

/// Cut the data of a chunk, a memoryview, into runs; None if anything in it is not as its header says.
#[pyfunction]
pub fn entry_runs(
    data: &Bound<'_, PyAny>,
    entries: u64,
    records: u64,
    max_bytes: usize,
    max_records: u64,
) -> PyResult<Option<Vec<Run>>> {
    let (memory, place) = bytes_of(data)?;
    let bytes = memory.as_bytes(data.py()).get(place).unwrap_or_default();
    Ok(cut(bytes, entries, records, max_bytes, max_records))
}

/// Join messages as simple entries, each after its length; None if one is not `bytes` or too long.
#[pyfunction]
pub fn join_messages<'py>(messages: &Bound<'py, PyList>) -> Option<Bound<'py, PyBytes>> {
    let mut joined = Vec::new();
    for message in messages {
        let bytes = message.cast::<PyBytes>().ok()?.as_bytes();
        let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= MAX_MESSAGE_BYTES)?;
        joined.extend_from_slice(&length.to_be_bytes());
        joined.extend_from_slice(bytes);
    }
    Some(PyBytes::new(messages.py(), &joined))
}

fn cut(bytes: &[u8], entries: u64, records: u64, max_bytes: usize, max_records: u64) -> Option<Vec<Run>> {
    let (mut runs, mut at, mut found_entries, mut found_records) = (Vec::new(), 0, 0u64, 0u64);
    while at < bytes.len() {
        let (stop, count) = simple_run(bytes, at, max_bytes, max_records);
        let run = if count > 0 {
            found_entries += count;
            (count, at, stop, false)
        } else {
            let Entry::SubBatch(batch) = Entry::at(bytes, at, bytes.len())? else {
                return None;
            };
            found_entries += 1;
            (batch.records.into(), at, batch.content.end, true)
        };
        found_records += run.0;
        at = run.2;
        runs.push(run);
    }
    (found_entries == entries && found_records == records).then_some(runs)
}

/// Return where the run of simple entries that begins at byte `at` ends, and how many entries it has.
fn simple_run(bytes: &[u8], at: usize, max_bytes: usize, max_records: u64) -> (usize, u64) {
    let limit = at.saturating_add(max_bytes);
    let (mut stop, mut count) = (at, 0);
    while count < max_records {
        let Some(message) = message_at(bytes, stop, bytes.len()) else {
            break;
        };
        // An entry larger than a run goes alone.
        if message.end > limit && count > 0 {
            break;
        }
        (stop, count) = (message.end, count + 1);
        if stop > limit {
            break;
        }
    }
    (stop, count)
}
