//! A scan: the rows of chunks that lie in one piece of memory, until a batch is full or Python has to go on.

use std::ops::Range;

use crate::chunk::{Header, HEADER_BYTES};
use crate::columns::Integers;
use crate::entry::{is_chunk_data, is_sub_batch_data, message_at, Entry, SubBatch};
use crate::row::{microseconds, Columns};

/// A message larger than this is Python's: so the columns of a batch stay below 2 GiB, whatever JSON makes of it.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Bytes that are fetched from memory at a time, few enough to stay in the processor's cache until they are decoded.
const FETCHED_BYTES: usize = 128 << 10;

/// The processor loads memory in lines of this size.
const LINE_BYTES: usize = 64;

/// A user chunk whose header and CRC are right.
pub struct ScannedChunk {
    /// What Python knows it by: its number, or the byte where it begins.
    pub place: usize,
    pub chunk_id: u64,
    pub entries: u64,
    pub records: u64,
    pub timestamp: i64,
    pub data: Range<usize>,
    /// Whether the entries are as many as the header says; None if nobody has counted them.
    pub is_counted: Option<bool>,
}

/// What is read, and how large a batch may be.
pub struct Bounds {
    pub start: u64,
    pub end: u64,
    pub earliest: i64,
    pub latest: i64,
    pub max_rows: usize,
    pub max_bytes: usize,
    pub max_cell_bytes: usize,
    pub max_declined: usize,
}

/// A row that is null so far: its number, and the message.
pub struct DeclinedRow {
    pub row: usize,
    pub offset: u64,
    pub timestamp: i64,
    pub message: Vec<u8>,
}

/// Rows, until they are a batch.
pub struct Batch {
    pub columns: Columns,
    pub offsets: Vec<i64>,
    pub times: Integers,
    pub declined: Vec<DeclinedRow>,
    size_bytes: usize,
}

/// Why a scan stopped.
pub enum Step {
    Full,
    /// A sub-batch comes next that is to be unpacked: call `unpacked`.
    Packed(SubBatch),
    /// Everything was read.
    End,
    Declined(Declined),
}

/// Where Python goes on: in which chunk, its id, and the first offset that is left. The scan goes on after that chunk.
#[derive(Clone, Copy)]
pub struct Declined {
    pub place: usize,
    pub chunk_id: u64,
    pub offset: u64,
}

struct OpenChunk {
    place: usize,
    chunk_id: u64,
    timestamp: i64,
    at: usize,
    end: usize,
    fetched: usize,
    offset: u64,
    batch: Option<OpenSubBatch>,
}

struct OpenSubBatch {
    unpacked: Option<Vec<u8>>,
    at: usize,
    end: usize,
}

pub struct Scan {
    chunks: std::vec::IntoIter<ScannedChunk>,
    bounds: Bounds,
    open: Option<OpenChunk>,
    pub batch: Batch,
}

impl Batch {
    pub fn new(columns: Columns) -> Self {
        Self { columns, offsets: Vec::new(), times: Integers::default(), declined: Vec::new(), size_bytes: 0 }
    }

    pub fn rows(&self) -> usize {
        self.offsets.len()
    }

    /// Add a message. Add nothing, and return false, if the batch has no room for it.
    fn push(
        &mut self,
        bounds: &Bounds,
        memory: &[u8],
        place: Range<usize>,
        is_scanned: bool,
        offset: u64,
        timestamp: i64,
    ) -> bool {
        let rows = self.rows();
        if rows >= bounds.max_rows || self.declined.len() >= bounds.max_declined {
            return rows == 0;
        }
        let mut size = place.len();
        let found = if size > MAX_MESSAGE_BYTES { None } else { self.columns.push(memory, place.clone(), is_scanned) };
        let is_declined = found.is_none_or(|size| size > bounds.max_cell_bytes);
        if is_declined {
            self.columns.truncate(rows);
            self.columns.push_nulls();
        } else {
            size = found.unwrap_or(size);
        }
        if rows > 0 && self.size_bytes + size > bounds.max_bytes {
            self.columns.truncate(rows);
            return false;
        }
        if is_declined {
            let message = memory.get(place).unwrap_or_default().to_vec();
            self.declined.push(DeclinedRow { row: rows, offset, timestamp, message });
        }
        self.offsets.push(offset as i64);
        self.times.push(microseconds(timestamp));
        self.size_bytes += size;
        true
    }
}

impl Scan {
    pub fn new(chunks: Vec<ScannedChunk>, bounds: Bounds, columns: Columns) -> Self {
        Self { chunks: chunks.into_iter(), bounds, open: None, batch: Batch::new(columns) }
    }

    /// Take the rows so far, and begin another batch.
    pub fn take_batch(&mut self, columns: Columns) -> Batch {
        std::mem::replace(&mut self.batch, Batch::new(columns))
    }

    /// Read on, until something has to be done.
    pub fn run(&mut self, memory: &[u8]) -> Step {
        loop {
            let Some(mut chunk) = self.open.take() else {
                let Some(found) = self.chunks.next() else {
                    return Step::End;
                };
                if self.bounds.leaves_out(&found) {
                    continue;
                }
                let mut chunk = OpenChunk {
                    place: found.place,
                    chunk_id: found.chunk_id,
                    timestamp: found.timestamp,
                    at: found.data.start,
                    end: found.data.end,
                    fetched: found.data.start,
                    offset: found.chunk_id,
                    batch: None,
                };
                chunk.fetch(memory);
                // A column of offsets holds signed ones.
                let is_right = i64::try_from(found.chunk_id.saturating_add(found.records)).is_ok()
                    && found
                        .is_counted
                        .unwrap_or_else(|| is_chunk_data(memory, &found.data, found.entries, found.records));
                if !is_right {
                    return chunk.declined(self.bounds.start);
                }
                self.open = Some(chunk);
                continue;
            };
            let step = self.read_on(&mut chunk, memory);
            match step {
                None => {}
                // Python reads the rest of the chunk.
                Some(step @ Step::Declined(_)) => return step,
                Some(step) => {
                    self.open = Some(chunk);
                    return step;
                }
            }
        }
    }

    /// Give what the sub-batch that `run` stopped at holds, None if it cannot be unpacked. Return where Python has to go
    /// on, if it has to.
    pub fn unpacked(&mut self, batch: &SubBatch, unpacked: Option<Vec<u8>>) -> Option<Step> {
        let mut chunk = self.open.take()?;
        let unpacked = unpacked.filter(|content| is_sub_batch_data(content, &(0..content.len()), batch.records));
        let Some(content) = unpacked else {
            return Some(chunk.declined(self.bounds.start));
        };
        chunk.open(0..content.len(), Some(content), batch);
        self.open = Some(chunk);
        None
    }

    /// Read on in a chunk; None at its end.
    fn read_on(&mut self, chunk: &mut OpenChunk, memory: &[u8]) -> Option<Step> {
        let bounds = &self.bounds;
        loop {
            if let Some(batch) = &mut chunk.batch {
                let (content, is_scanned) = match &batch.unpacked {
                    Some(unpacked) => (unpacked.as_slice(), false),
                    None => (memory, true),
                };
                while let Some(place) = message_at(content, batch.at, batch.end) {
                    let after = place.end;
                    if chunk.offset >= bounds.start
                        && chunk.offset < bounds.end
                        && !self.batch.push(bounds, content, place, is_scanned, chunk.offset, chunk.timestamp)
                    {
                        return Some(Step::Full);
                    }
                    batch.at = after;
                    chunk.offset += 1;
                }
                chunk.batch = None;
            }
            if chunk.at >= chunk.end || chunk.offset >= bounds.end {
                return None;
            }
            chunk.fetch(memory);
            let Some(entry) = Entry::at(memory, chunk.at, chunk.end) else {
                return Some(chunk.declined(bounds.start));
            };
            let after = entry.end();
            match entry {
                Entry::Message(place) => {
                    if chunk.offset >= bounds.start
                        && !self.batch.push(bounds, memory, place, true, chunk.offset, chunk.timestamp)
                    {
                        return Some(Step::Full);
                    }
                    chunk.at = after;
                    chunk.offset += 1;
                }
                Entry::SubBatch(batch) if chunk.offset + u64::from(batch.records) <= bounds.start => {
                    chunk.at = after;
                    chunk.offset += u64::from(batch.records);
                }
                Entry::SubBatch(batch) if batch.compression > 0 => return Some(Step::Packed(batch)),
                Entry::SubBatch(batch) => {
                    if !is_sub_batch_data(memory, &batch.content, batch.records) {
                        return Some(chunk.declined(bounds.start));
                    }
                    chunk.open(batch.content.clone(), None, &batch);
                }
            }
        }
    }
}

impl Bounds {
    fn leaves_out(&self, chunk: &ScannedChunk) -> bool {
        chunk.chunk_id >= self.end
            || chunk.chunk_id.saturating_add(chunk.records) <= self.start
            || !(self.earliest..=self.latest).contains(&chunk.timestamp)
    }
}

impl OpenChunk {
    /// Fetch the next bytes, if entries begin there now. In a row, lines come from memory many times faster than one by
    /// one, as entries are read: each says where the next one is, and most of a message is not looked at.
    fn fetch(&mut self, memory: &[u8]) {
        if self.at < self.fetched || self.fetched >= self.end {
            return;
        }
        let stop = self.end.min(self.at.saturating_add(FETCHED_BYTES));
        let lines = memory.get(self.at..stop).unwrap_or_default().chunks(LINE_BYTES);
        std::hint::black_box(lines.filter_map(|line| line.first()).fold(0, |sum: u8, octet| sum ^ octet));
        self.fetched = stop;
    }

    fn open(&mut self, place: Range<usize>, unpacked: Option<Vec<u8>>, batch: &SubBatch) {
        self.at = batch.content.end;
        self.batch = Some(OpenSubBatch { unpacked, at: place.start, end: place.end });
    }

    fn declined(&self, start: u64) -> Step {
        // Before the first message was read, Python's reading begins where it was asked to, which may be before the chunk.
        let offset = if self.offset == self.chunk_id { start } else { self.offset.max(start) };
        Step::Declined(Declined { place: self.place, chunk_id: self.chunk_id, offset })
    }
}

/// Parse and verify the chunks that are all of these bytes of the memory, the first with the id `first_offset`. Return the
/// user chunks, which count their places from `range.start`, and the offset after the last chunk; None if one is not right.
///
/// With `counts`, their entries are counted as well: right after its CRC, a chunk is in the processor's cache.
pub fn verify(memory: &[u8], range: Range<usize>, first_offset: u64, counts: bool) -> Option<(Vec<ScannedChunk>, u64)> {
    let mut found = Vec::new();
    let (mut at, mut expected) = (range.start, first_offset);
    while at < range.end {
        let header = Header::parse(memory.get(at..range.end)?)?;
        let start = at.checked_add(HEADER_BYTES + header.bloom_bytes)?;
        let data = start..start.checked_add(header.data_bytes)?;
        let end = data.end.checked_add(header.trailer_bytes)?;
        let content = memory.get(data.clone())?;
        if header.chunk_id != expected || end > range.end || crc32fast::hash(content) != header.crc {
            return None;
        }
        if header.is_user {
            found.push(ScannedChunk {
                place: at - range.start,
                chunk_id: header.chunk_id,
                entries: header.entries,
                records: header.records,
                timestamp: header.timestamp,
                is_counted: counts.then(|| is_chunk_data(memory, &data, header.entries, header.records)),
                data,
            });
        }
        at = end;
        expected = header.next_offset();
    }
    Some((found, expected))
}
