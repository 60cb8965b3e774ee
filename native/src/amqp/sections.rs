//! Where the sections of a message are, by the rules of `coldstream/format/amqp/sections.py`.

use crate::read::{byte, size_at, slice, u32_at};

const FIRST: u8 = 0x70;
pub const HEADER: usize = 0;
pub const DELIVERY_ANNOTATIONS: usize = 1;
pub const MESSAGE_ANNOTATIONS: usize = 2;
pub const PROPERTIES: usize = 3;
pub const APPLICATION_PROPERTIES: usize = 4;
pub const DATA: usize = 5;
pub const SEQUENCE: usize = 6;
pub const VALUE: usize = 7;
pub const FOOTER: usize = 8;
const SECTIONS: usize = 9;

const BINARY8_HEADER_BYTES: u32 = 2;
const BINARY32_HEADER_BYTES: u32 = 5;

/// The value of each section, by its descriptor less 0x70: start and end in the message, or two zeros.
pub struct Sections([(u32, u32); SECTIONS]);

impl Sections {
    /// Locate the sections of a message. None unless each begins as the common ones do and is there once, and the body
    /// is of one kind: Python says what else it is.
    pub fn locate(message: &[u8]) -> Option<Self> {
        let mut found = [(0, 0); SECTIONS];
        let size = u32::try_from(message.len()).ok()?;
        let mut at = 0;
        while at < message.len() {
            let head = u32_at(message, at)?;
            if head >> 16 != 0x0053 {
                return None;
            }
            let code = (head >> 8 & 0xff) as u8;
            let kind = (head & 0xff) as u8;
            let index = usize::from(code.checked_sub(FIRST)?);
            let narrow = match index {
                HEADER | PROPERTIES | SEQUENCE => 0xc0,
                DELIVERY_ANNOTATIONS | MESSAGE_ANNOTATIONS | APPLICATION_PROPERTIES | FOOTER => 0xc1,
                DATA => 0xa0,
                _ => 0,
            };
            let end = if index == VALUE {
                value_end(message, at + 3, kind)?
            } else if narrow != 0 && kind == narrow {
                at + 5 + usize::from(byte(message, at + 4)?)
            } else if narrow != 0 && kind == narrow + 0x10 {
                (at + 8).checked_add(size_at(message, at + 4)?)?
            } else if narrow == 0xc0 && kind == 0x45 {
                at + 4
            } else {
                return None;
            };
            let place = found.get_mut(index)?;
            let stop = u32::try_from(end).ok()?;
            if place.1 != 0 || stop > size {
                return None;
            }
            *place = (u32::try_from(at + 3).ok()?, stop);
            at = end;
        }
        let bodies =
            [DATA, SEQUENCE, VALUE].iter().filter(|index| found.get(**index).is_some_and(|place| place.1 != 0));
        (bodies.count() <= 1).then_some(Self(found))
    }

    /// Return where the value of a section is, constructor included; None if the message has none.
    pub fn place(&self, index: usize) -> Option<(u32, u32)> {
        self.0.get(index).copied().filter(|place| place.1 != 0)
    }

    pub fn value<'a>(&self, message: &'a [u8], index: usize) -> Option<&'a [u8]> {
        let (start, end) = self.place(index)?;
        message.get(start as usize..end as usize)
    }

    /// Return where the bytes of the data section are.
    pub fn data_place(&self, message: &[u8]) -> Option<(u32, u32)> {
        let (start, end) = self.place(DATA)?;
        let is_short = byte(message, start as usize)? == 0xa0;
        Some((start + if is_short { BINARY8_HEADER_BYTES } else { BINARY32_HEADER_BYTES }, end))
    }
}

/// Return where the value that begins at byte `at` ends, of the constructors that say so by themselves.
fn value_end(message: &[u8], at: usize, kind: u8) -> Option<usize> {
    let after = at + 1;
    let end = match kind >> 4 {
        0x4 => after,
        0x5 => after + 1,
        0x6 => after + 2,
        0x7 => after + 4,
        0x8 => after + 8,
        0x9 => after + 16,
        0xa | 0xc | 0xe => after + 1 + usize::from(byte(message, after)?),
        0xb | 0xd | 0xf => (after + 4).checked_add(size_at(message, after)?)?,
        _ => return None,
    };
    slice(message, at, end - at).map(|_| end)
}

/// Return where the body is in a message that is one data section in its shortest form, and so has nothing but a body.
pub fn plain_body(message: &[u8]) -> Option<usize> {
    match u32_at(message, 0)? {
        0x0053_75a0 => (usize::from(byte(message, 4)?) + 5 == message.len()).then_some(5),
        0x0053_75b0 => {
            let length = size_at(message, 4)?;
            (length > 255 && length + 8 == message.len()).then_some(8)
        }
        _ => None,
    }
}
