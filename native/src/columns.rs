//! Columns in Arrow's layout, filled row by row: validity bits, offsets, data.

/// One bit a row, the lowest first: whether it has a value.
#[derive(Default)]
pub struct Validity {
    pub bits: Vec<u8>,
    pub rows: usize,
    pub nulls: usize,
}

impl Validity {
    pub fn push(&mut self, is_valid: bool) {
        let bit = self.rows % 8;
        if bit == 0 {
            self.bits.push(0);
        }
        if let Some(last) = self.bits.last_mut() {
            *last |= u8::from(is_valid) << bit;
        }
        self.rows += 1;
        self.nulls += usize::from(!is_valid);
    }

    pub fn truncate(&mut self, rows: usize) {
        for row in rows..self.rows {
            let is_valid = self.bits.get(row / 8).is_some_and(|octet| octet >> (row % 8) & 1 == 1);
            self.nulls -= usize::from(!is_valid);
        }
        self.rows = self.rows.min(rows);
        self.bits.truncate(rows.div_ceil(8));
        if let (Some(last), true) = (self.bits.last_mut(), rows % 8 > 0) {
            *last &= (1 << (rows % 8)) - 1;
        }
    }
}

/// Texts or binary values, one after another.
pub struct Bytes {
    pub validity: Validity,
    pub offsets: Vec<i32>,
    pub data: Vec<u8>,
}

impl Bytes {
    pub fn new() -> Self {
        Self { validity: Validity::default(), offsets: vec![0], data: Vec::new() }
    }

    /// Add the row whose content was appended to `data`.
    pub fn end_row(&mut self, is_valid: bool) {
        // Rows are limited (rows.rs): the data of a column stays far below 2 GiB.
        self.offsets.push(self.data.len() as i32);
        self.validity.push(is_valid);
    }

    pub fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.data.truncate(self.offsets.last().map_or(0, |end| *end as usize));
        self.validity.truncate(rows);
    }
}

/// Integers, or times in microseconds.
#[derive(Default)]
pub struct Integers {
    pub validity: Validity,
    pub values: Vec<i64>,
}

impl Integers {
    pub fn push(&mut self, value: Option<i64>) {
        self.values.push(value.unwrap_or(0));
        self.validity.push(value.is_some());
    }

    pub fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
        self.validity.truncate(rows);
    }
}

/// Maps from text to text.
pub struct Maps {
    pub validity: Validity,
    pub offsets: Vec<i32>,
    pub keys: Bytes,
    pub items: Bytes,
}

impl Maps {
    pub fn new() -> Self {
        Self { validity: Validity::default(), offsets: vec![0], keys: Bytes::new(), items: Bytes::new() }
    }

    /// Add the row whose pairs were added to `keys` and `items`.
    pub fn end_row(&mut self, is_valid: bool) {
        self.offsets.push(self.keys.validity.rows as i32);
        self.validity.push(is_valid);
    }

    pub fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        let pairs = self.offsets.last().map_or(0, |end| *end as usize);
        self.keys.truncate(pairs);
        self.items.truncate(pairs);
        self.validity.truncate(rows);
    }
}

/// Where a value is until its column is made, which then copies it once.
pub enum Piece {
    /// In the memory that is scanned.
    Scanned(usize, usize),
    /// In the column's own memory: what was unpacked for it.
    Own(usize, usize),
    Null,
}

/// The values of messages.
#[derive(Default)]
pub struct Values {
    pub pieces: Vec<Piece>,
    pub own: Vec<u8>,
}

impl Values {
    pub fn push_own(&mut self, value: &[u8]) {
        let start = self.own.len();
        self.own.extend_from_slice(value);
        self.pieces.push(Piece::Own(start, self.own.len()));
    }
}
