//! Entries of a chunk's data section, by the rules of `coldstream/format/entry.py`.

use std::ops::Range;

use crate::read::{byte, size_at, u16_at, u32_at};

const SIMPLE_HEADER_BYTES: usize = 4;
const SUB_BATCH_HEADER_BYTES: usize = 11;
const SUB_BATCH_BIT: u32 = 1 << 31;
const RESERVED_BITS: u8 = 0x0f;

/// An entry, as places in the data that it was read from.
pub enum Entry {
    Message(Range<usize>),
    SubBatch(SubBatch),
}

pub struct SubBatch {
    pub compression: u8,
    pub records: u16,
    pub uncompressed_bytes: u32,
    pub content: Range<usize>,
}

impl Entry {
    pub fn end(&self) -> usize {
        match self {
            Self::Message(content) => content.end,
            Self::SubBatch(batch) => batch.content.end,
        }
    }

    pub fn records(&self) -> u64 {
        match self {
            Self::Message(_) => 1,
            Self::SubBatch(batch) => batch.records.into(),
        }
    }

    /// Read the entry at byte `at` of a chunk's data, which ends at `end`; None if it is not right.
    pub fn at(memory: &[u8], at: usize, end: usize) -> Option<Self> {
        if let Some(message) = message_at(memory, at, end) {
            return Some(Self::Message(message));
        }
        if u32_at(memory, at)? & SUB_BATCH_BIT == 0 {
            return None;
        }
        let kind = byte(memory, at)?;
        let start = at.checked_add(SUB_BATCH_HEADER_BYTES)?;
        let stop = start.checked_add(size_at(memory, at + 7)?)?;
        (kind & RESERVED_BITS == 0 && stop <= end).then_some(Self::SubBatch(SubBatch {
            compression: kind >> 4 & 7,
            records: u16_at(memory, at + 1)?,
            uncompressed_bytes: u32_at(memory, at + 3)?,
            content: start..stop,
        }))
    }
}

/// Return where the message of the simple entry at byte `at` is; None if it is another entry, or runs past `end`.
pub fn message_at(memory: &[u8], at: usize, end: usize) -> Option<Range<usize>> {
    let length = u32_at(memory, at)?;
    let start = at.checked_add(SIMPLE_HEADER_BYTES)?;
    let stop = start.checked_add(usize::try_from(length).ok()?)?;
    (length & SUB_BATCH_BIT == 0 && stop <= end).then_some(start..stop)
}

/// Tell whether a chunk's data is exactly as many entries and records as its header says, and no sub-batch is empty: such
/// a one has no offset of its own, at which Python could go on with it. Sub-batches stay packed.
pub fn is_chunk_data(memory: &[u8], data: &Range<usize>, entries: u64, records: u64) -> bool {
    let (mut at, mut found_entries, mut found_records) = (data.start, 0u64, 0u64);
    while at < data.end {
        let Some(entry) = Entry::at(memory, at, data.end) else {
            return false;
        };
        if entry.records() == 0 {
            return false;
        }
        found_entries += 1;
        found_records += entry.records();
        at = entry.end();
    }
    found_entries == entries && found_records == records
}

/// Tell whether the unpacked data of a sub-batch is exactly that many messages.
pub fn is_sub_batch_data(memory: &[u8], data: &Range<usize>, records: u16) -> bool {
    let (mut at, mut found) = (data.start, 0u64);
    while at < data.end {
        let Some(message) = message_at(memory, at, data.end) else {
            return false;
        };
        found += 1;
        at = message.end;
    }
    found == u64::from(records)
}
