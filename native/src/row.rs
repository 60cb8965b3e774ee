//! A message as a row, by the rules of `coldstream/rows/cells.py`.

use std::collections::HashSet;
use std::ops::Range;

use crate::amqp::scalar::{Elements, Scalar};
use crate::amqp::sections::{
    plain_body, Sections, APPLICATION_PROPERTIES, MESSAGE_ANNOTATIONS, PROPERTIES, SEQUENCE, VALUE,
};
use crate::amqp::text;
use crate::columns::{Bytes, Integers, Maps, Piece, Validity, Values};

const FIELDS: usize = 13;
const CREATION_TIME: usize = 9;
const FEW_KEYS: usize = 16;

/// The fields of properties, each in the type of its column.
pub enum Field {
    Text(Bytes),
    Binary(Bytes),
    Time(Integers),
    Whole(Integers),
}

pub struct PropertiesColumn {
    pub validity: Validity,
    pub fields: Vec<Field>,
}

/// The columns that are decoded, those that were asked for.
#[derive(Default)]
pub struct Columns {
    pub value: Option<Values>,
    pub properties: Option<PropertiesColumn>,
    pub application_properties: Option<Maps>,
    pub message_annotations: Option<Maps>,
    pub creation_time: Option<Integers>,
    pub routing_key: Option<Bytes>,
}

type Pairs<'a> = Vec<(&'a str, Scalar<'a>)>;

/// What the columns have of a message.
#[derive(Default)]
struct Row<'a> {
    value: Option<Range<usize>>,
    properties: Option<[Scalar<'a>; FIELDS]>,
    application_properties: Option<Pairs<'a>>,
    message_annotations: Option<Pairs<'a>>,
    routing_key: Option<Scalar<'a>>,
}

impl Columns {
    pub fn of(names: &[String]) -> Self {
        let has = |name: &str| names.iter().any(|one| one == name);
        Self {
            value: has("value").then(Values::default),
            properties: has("properties").then(PropertiesColumn::new),
            application_properties: has("application_properties").then(Maps::new),
            message_annotations: has("message_annotations").then(Maps::new),
            creation_time: has("creation_time").then(Integers::default),
            routing_key: has("routing_key").then(Bytes::new),
        }
    }

    /// Add the message in these bytes of the memory, and return how many bytes its cells have. Add nothing, and return
    /// None, if it is for Python to decide. `is_scanned` says that the memory is the one that is scanned.
    pub fn push(&mut self, memory: &[u8], place: Range<usize>, is_scanned: bool) -> Option<usize> {
        let start = place.start;
        let message = memory.get(place)?;
        let row = self.read(message)?;
        let mut size = 0;
        if let Some(column) = &mut self.value {
            match row.value {
                None => column.pieces.push(Piece::Null),
                Some(body) => {
                    size += body.len();
                    if is_scanned {
                        column.pieces.push(Piece::Scanned(start + body.start, start + body.end));
                    } else {
                        column.push_own(message.get(body).unwrap_or_default());
                    }
                }
            }
        }
        if let Some(column) = &mut self.creation_time {
            column.push(row.properties.and_then(|fields| fields.get(CREATION_TIME).copied()).and_then(time));
        }
        if let Some(column) = &mut self.properties {
            size += column.push(row.properties.as_ref());
        }
        for (column, pairs) in [
            (&mut self.application_properties, &row.application_properties),
            (&mut self.message_annotations, &row.message_annotations),
        ] {
            if let Some(column) = column {
                size += push_pairs(column, pairs.as_ref());
            }
        }
        if let Some(column) = &mut self.routing_key {
            size += push_text(column, row.routing_key.unwrap_or(Scalar::Null));
        }
        Some(size)
    }

    pub fn push_nulls(&mut self) {
        if let Some(column) = &mut self.value {
            column.pieces.push(Piece::Null);
        }
        if let Some(column) = &mut self.creation_time {
            column.push(None);
        }
        if let Some(column) = &mut self.properties {
            column.push(None);
        }
        for column in [&mut self.application_properties, &mut self.message_annotations].into_iter().flatten() {
            column.end_row(false);
        }
        if let Some(column) = &mut self.routing_key {
            column.end_row(false);
        }
    }

    /// Take the rows from the given one on away again.
    pub fn truncate(&mut self, rows: usize) {
        if let Some(column) = &mut self.value {
            column.pieces.truncate(rows);
        }
        if let Some(column) = &mut self.creation_time {
            column.truncate(rows);
        }
        if let Some(column) = &mut self.properties {
            column.truncate(rows);
        }
        for column in [&mut self.application_properties, &mut self.message_annotations].into_iter().flatten() {
            column.truncate(rows);
        }
        if let Some(column) = &mut self.routing_key {
            column.truncate(rows);
        }
    }

    fn read<'a>(&self, message: &'a [u8]) -> Option<Row<'a>> {
        let mut row = Row::default();
        if let Some(at) = plain_body(message) {
            row.value = Some(at..message.len());
            return Some(row);
        }
        if message.first().is_none_or(|first| *first != 0) {
            // Not AMQP, or how some clients publish an empty body.
            row.value = Some(0..message.len());
            return Some(row);
        }
        let sections = Sections::locate(message)?;
        if self.value.is_some() {
            row.value = body(message, &sections)?;
        }
        if self.properties.is_some() || self.creation_time.is_some() {
            row.properties = match sections.value(message, PROPERTIES) {
                Some(section) => Some(fields(section)?),
                None => None,
            };
        }
        let pairs_of = |index| match sections.value(message, index) {
            Some(section) => pairs(section).map(Some),
            None => Some(None),
        };
        if self.application_properties.is_some() || self.routing_key.is_some() {
            row.application_properties = pairs_of(APPLICATION_PROPERTIES)?;
        }
        if self.message_annotations.is_some() || self.routing_key.is_some() {
            row.message_annotations = pairs_of(MESSAGE_ANNOTATIONS)?;
        }
        row.routing_key = named(&row.message_annotations, "x-routing-key")
            .or_else(|| named(&row.application_properties, "routing_key"));
        Some(row)
    }
}

impl PropertiesColumn {
    fn new() -> Self {
        let fields = (0..FIELDS).map(|number| match number {
            1 => Field::Binary(Bytes::new()),
            8 | CREATION_TIME => Field::Time(Integers::default()),
            11 => Field::Whole(Integers::default()),
            _ => Field::Text(Bytes::new()),
        });
        Self { validity: Validity::default(), fields: fields.collect() }
    }

    fn push(&mut self, values: Option<&[Scalar<'_>; FIELDS]>) -> usize {
        let mut size = 0;
        for (number, field) in self.fields.iter_mut().enumerate() {
            let value = values.and_then(|values| values.get(number).copied()).unwrap_or(Scalar::Null);
            match (field, value) {
                (Field::Binary(column), Scalar::Binary(bytes) | Scalar::Decimal(bytes)) => {
                    column.data.extend_from_slice(bytes);
                    column.end_row(true);
                    size += bytes.len();
                }
                (Field::Text(column) | Field::Binary(column), value) => size += push_text(column, value),
                (Field::Time(column), value) => column.push(time(value)),
                (Field::Whole(column), value) => column.push(whole(value)),
            }
        }
        self.validity.push(values.is_some());
        size
    }

    fn truncate(&mut self, rows: usize) {
        for field in &mut self.fields {
            match field {
                Field::Text(column) | Field::Binary(column) => column.truncate(rows),
                Field::Time(column) | Field::Whole(column) => column.truncate(rows),
            }
        }
        self.validity.truncate(rows);
    }
}

/// Return where the value is in the message, `Some(None)` if it has none; None if it is JSON or damaged.
fn body(message: &[u8], sections: &Sections) -> Option<Option<Range<usize>>> {
    if let Some((start, end)) = sections.data_place(message) {
        return Some(Some(start as usize..end as usize));
    }
    if sections.place(SEQUENCE).is_some() {
        return None;
    }
    let Some(section) = sections.value(message, VALUE) else {
        return Some(None);
    };
    let (_, end) = sections.place(VALUE)?;
    let content = match Scalar::whole(section)? {
        Scalar::Null => return Some(None),
        Scalar::Binary(content) => content,
        Scalar::Text(content) | Scalar::Symbol(content) => content.as_bytes(),
        _ => return None,
    };
    // The content of a sized value ends where the value does.
    Some(Some((end as usize).checked_sub(content.len())?..end as usize))
}

fn fields(section: &[u8]) -> Option<[Scalar<'_>; FIELDS]> {
    let mut elements = Elements::of(section, false)?;
    let mut values = [Scalar::Null; FIELDS];
    let mut number = 0;
    while let Some(value) = elements.read()? {
        *values.get_mut(number)? = value;
        number += 1;
    }
    Some(values)
}

/// Read a map from texts; None if keys are of other types, or twice there, for then the last one counts.
fn pairs(section: &[u8]) -> Option<Pairs<'_>> {
    let mut elements = Elements::of(section, true)?;
    // A size is only a claim: memory is taken for what is there.
    let mut found: Pairs<'_> = Vec::with_capacity(elements.left().min(2 * FEW_KEYS) / 2);
    while let Some(key) = elements.read()? {
        let (Scalar::Text(key) | Scalar::Symbol(key)) = key else {
            return None;
        };
        found.push((key, elements.read()??));
    }
    let are_unique = if found.len() <= FEW_KEYS {
        found.iter().enumerate().all(|(number, (key, _))| found.iter().skip(number + 1).all(|(other, _)| other != key))
    } else {
        let mut seen = HashSet::new();
        found.iter().all(|(key, _)| seen.insert(*key))
    };
    are_unique.then_some(found)
}

fn named<'a>(pairs: &Option<Pairs<'a>>, name: &str) -> Option<Scalar<'a>> {
    let (_, value) = pairs.as_ref()?.iter().find(|(key, _)| *key == name)?;
    (!matches!(value, Scalar::Null)).then_some(*value)
}

fn push_pairs(column: &mut Maps, pairs: Option<&Pairs<'_>>) -> usize {
    let mut size = 0;
    for (key, value) in pairs.into_iter().flatten() {
        size += push_text(&mut column.keys, Scalar::Text(key));
        size += push_text(&mut column.items, *value);
    }
    column.end_row(pairs.is_some());
    size
}

fn push_text(column: &mut Bytes, value: Scalar<'_>) -> usize {
    let before = column.data.len();
    text::append(&mut column.data, value);
    column.end_row(!matches!(value, Scalar::Null));
    column.data.len() - before
}

fn time(value: Scalar<'_>) -> Option<i64> {
    match value {
        Scalar::Timestamp(ms) => microseconds(ms),
        _ => None,
    }
}

/// Return a time in ms as a time column holds it; none outside the years 1 to 9999.
pub fn microseconds(ms: i64) -> Option<i64> {
    (text::LEAST_MS..=text::MOST_MS).contains(&ms).then(|| ms.saturating_mul(1000))
}

fn whole(value: Scalar<'_>) -> Option<i64> {
    match value {
        Scalar::Unsigned(number) => i64::try_from(number).ok(),
        // Python leaves the least out: it compares the absolute value.
        Scalar::Signed(number) => (number != i64::MIN).then_some(number),
        _ => None,
    }
}
