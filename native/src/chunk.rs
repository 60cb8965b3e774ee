//! Chunk headers, by the rules of `coldstream/format/chunk.py`, which has the table of fields.

use crate::read::{array, byte, size_at, u16_at, u32_at, u64_at};

pub const HEADER_BYTES: usize = 48;

const MAGIC_AND_VERSION: u8 = 0x50;
const LEAST_ENTRY_BYTES: u64 = 4;
const LAST_TYPE: u8 = 2;

pub struct Header {
    pub is_user: bool,
    pub entries: u64,
    pub records: u64,
    pub timestamp: i64,
    pub chunk_id: u64,
    pub crc: u32,
    pub bloom_bytes: usize,
    pub data_bytes: usize,
    pub trailer_bytes: usize,
}

impl Header {
    /// Parse the header at the start of `bytes`; None for anything that Python's `ChunkHeader.from_bytes` refuses.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let kind = byte(bytes, 1)?;
        let header = Self {
            is_user: kind == 0,
            entries: u16_at(bytes, 2)?.into(),
            records: u32_at(bytes, 4)?.into(),
            timestamp: i64::from_be_bytes(array(bytes, 8)?),
            chunk_id: u64_at(bytes, 24)?,
            crc: u32_at(bytes, 32)?,
            data_bytes: size_at(bytes, 36)?,
            trailer_bytes: size_at(bytes, 40)?,
            bloom_bytes: byte(bytes, 44)?.into(),
        };
        let is_right = byte(bytes, 0)? == MAGIC_AND_VERSION
            && kind <= LAST_TYPE
            && array::<3>(bytes, 45)? == [0; 3]
            && header.entries > 0
            && header.records > 0
            && header.data_bytes as u64 >= header.entries * LEAST_ENTRY_BYTES
            && header.chunk_id.checked_add(header.records).is_some()
            && (header.is_user || (header.entries == 1 && header.records == 1 && header.trailer_bytes == 0));
        is_right.then_some(header)
    }

    pub fn next_offset(&self) -> u64 {
        self.chunk_id.saturating_add(self.records)
    }
}
