//! Simple AMQP values, and the lists and maps of them that sections are. Tables: `coldstream/format/amqp/values.py`.

use crate::read::{array, byte, size_at, slice, u16_at, u32_at, u64_at};

/// A value that holds no other. Text that is not UTF-8 comes out as `Binary`, as in Python.
///
/// What it holds is aligned. With bytes of its own, which begin at any address, it would be moved in pieces that cross
/// those that it was written in, and the processor waits at each: 4 % of the time of rows with properties.
#[derive(Clone, Copy)]
pub enum Scalar<'a> {
    Null,
    Boolean(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Char(char),
    Timestamp(i64),
    Uuid(&'a [u8; 16]),
    Decimal(&'a [u8]),
    Binary(&'a [u8]),
    Text(&'a str),
    Symbol(&'a str),
}

impl<'a> Scalar<'a> {
    /// Read the value at byte `at`, and where it ends; None if it is damaged, holds values, or runs past the end.
    ///
    /// Inline, with `read` below, or values pass through memory, written and read again in pieces of other sizes, for
    /// which the processor waits: a fifth of the time of a row with properties.
    #[inline(always)]
    pub fn at(data: &'a [u8], at: usize) -> Option<(Self, usize)> {
        let code = byte(data, at)?;
        let at = at + 1;
        let found = match code {
            0x40 => (Self::Null, at),
            0x41 => (Self::Boolean(true), at),
            0x42 => (Self::Boolean(false), at),
            0x43 | 0x44 => (Self::Unsigned(0), at),
            0x50 | 0x52 | 0x53 => (Self::Unsigned(byte(data, at)?.into()), at + 1),
            0x51 | 0x54 | 0x55 => (Self::Signed(i8::from_be_bytes(array(data, at)?).into()), at + 1),
            0x56 => match byte(data, at)? {
                0 => (Self::Boolean(false), at + 1),
                1 => (Self::Boolean(true), at + 1),
                _ => return None,
            },
            0x60 => (Self::Unsigned(u16_at(data, at)?.into()), at + 2),
            0x61 => (Self::Signed(i16::from_be_bytes(array(data, at)?).into()), at + 2),
            0x70 => (Self::Unsigned(u32_at(data, at)?.into()), at + 4),
            0x71 => (Self::Signed(i32::from_be_bytes(array(data, at)?).into()), at + 4),
            0x72 => (Self::Float(f32::from_be_bytes(array(data, at)?).into()), at + 4),
            0x73 => (Self::Char(char::from_u32(u32_at(data, at)?)?), at + 4),
            0x74 => (Self::Decimal(slice(data, at, 4)?), at + 4),
            0x80 => (Self::Unsigned(u64_at(data, at)?), at + 8),
            0x81 => (Self::Signed(i64::from_be_bytes(array(data, at)?)), at + 8),
            0x82 => (Self::Float(f64::from_be_bytes(array(data, at)?)), at + 8),
            0x83 => (Self::Timestamp(i64::from_be_bytes(array(data, at)?)), at + 8),
            0x84 => (Self::Decimal(slice(data, at, 8)?), at + 8),
            0x94 => (Self::Decimal(slice(data, at, 16)?), at + 16),
            0x98 => (Self::Uuid(slice(data, at, 16)?.try_into().ok()?), at + 16),
            0xa0 | 0xa1 | 0xa3 | 0xb0 | 0xb1 | 0xb3 => {
                let (start, length) =
                    if code < 0xb0 { (at + 1, byte(data, at)?.into()) } else { (at + 4, size_at(data, at)?) };
                let content = slice(data, start, length)?;
                let value = match (code & 0x0f, std::str::from_utf8(content)) {
                    (1, Ok(text)) => Self::Text(text),
                    (3, Ok(text)) => Self::Symbol(text),
                    _ => Self::Binary(content),
                };
                (value, start + length)
            }
            _ => return None,
        };
        Some(found)
    }

    /// Read a value that is all of `data`.
    pub fn whole(data: &'a [u8]) -> Option<Self> {
        let (value, end) = Self::at(data, 0)?;
        (end == data.len()).then_some(value)
    }
}

/// Reads the elements of a list or map, which is all of `data`; of a map, keys and values in turn.
pub struct Elements<'a> {
    data: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Elements<'a> {
    /// Begin; None unless it is a list (map) whose size is right.
    pub fn of(data: &'a [u8], is_map: bool) -> Option<Self> {
        let kind = u8::from(is_map);
        let code = byte(data, 0)?;
        let (at, size_ends, size, left) = match code.checked_sub(kind)? {
            0x45 if !is_map => (1, 1, 0, 0),
            0xc0 => (3, 2, byte(data, 1)?.into(), byte(data, 2)?.into()),
            0xd0 => (9, 5, size_at(data, 1)?, size_at(data, 5)?),
            _ => return None,
        };
        (data.len() == size_ends + size && left <= size && (!is_map || left % 2 == 0)).then_some(Self {
            data,
            at,
            left,
        })
    }

    pub fn left(&self) -> usize {
        self.left
    }

    /// Read the next element. `Some(None)` is the end, exactly where it must be; None is anything that is not right.
    #[inline(always)]
    pub fn read(&mut self) -> Option<Option<Scalar<'a>>> {
        if self.left == 0 {
            return (self.at == self.data.len()).then_some(None);
        }
        let (value, end) = Scalar::at(self.data, self.at)?;
        self.at = end;
        self.left -= 1;
        Some(Some(value))
    }
}
