//! A message of a chunk, decoded where it is common; `coldstream.format.amqp.message` has what each attribute means.

use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::amqp::scalar::Scalar;
use crate::amqp::sections::{
    plain_body, Sections, APPLICATION_PROPERTIES, DATA, DELIVERY_ANNOTATIONS, FOOTER, HEADER, MESSAGE_ANNOTATIONS,
    PROPERTIES, SEQUENCE, VALUE,
};
use crate::decoder::MessageTypes;

/// What the messages of a chunk share.
pub struct ChunkContext {
    pub types: Py<MessageTypes>,
    pub source: Py<PyString>,
    pub timestamp: i64,
}

#[pyclass(frozen, module = "_coldstream_native", name = "NativeMessage")]
pub struct NativeMessage {
    #[pyo3(get)]
    offset: u64,
    context: Arc<ChunkContext>,
    /// The body of a message that is one data section in its shortest form; of any other, all of its bytes.
    content: Py<PyBytes>,
    is_plain: bool,
    decoded: OnceLock<Box<Decoded>>,
}

/// What Python makes a message of: offset, timestamp, raw, source.
type MessageParts<'py> = (u64, i64, Bound<'py, PyBytes>, Py<PyString>);

/// What was decoded so far. Without `sections`, Python's message answers everything.
struct Decoded {
    sections: Option<Sections>,
    values: [OnceLock<Py<PyAny>>; 6],
    in_python: OnceLock<Py<PyAny>>,
}

impl NativeMessage {
    pub fn new(py: Python<'_>, offset: u64, raw: &[u8], context: &Arc<ChunkContext>) -> Self {
        let body = plain_body(raw).and_then(|at| raw.get(at..));
        Self {
            offset,
            context: Arc::clone(context),
            content: PyBytes::new(py, body.unwrap_or(raw)).unbind(),
            is_plain: body.is_some(),
            decoded: OnceLock::new(),
        }
    }

    fn decoded(&self, py: Python<'_>) -> &Decoded {
        self.decoded.get_or_init(|| {
            Box::new(Decoded {
                sections: Sections::locate(self.content.as_bytes(py)),
                values: Default::default(),
                in_python: OnceLock::new(),
            })
        })
    }

    /// Ask Python's implementation, which decides in doubt and raises what is wrong.
    fn ask_python<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let known = &self.decoded(py).in_python;
        let message = match known.get() {
            Some(message) => message.bind(py).clone(),
            None => {
                let made = self.in_python(py)?;
                let _ = known.set(made.clone().unbind());
                made
            }
        };
        message.getattr(name)
    }

    fn in_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let context = &self.context;
        let make = context.types.get().any_message.bind(py);
        make.call1((self.offset, context.timestamp, self.raw(py), context.source.bind(py)))
    }

    fn section<'py>(&self, py: Python<'py>, index: usize, slot: usize, name: &str) -> PyResult<Bound<'py, PyAny>> {
        if self.is_plain {
            return Ok(py.None().into_bound(py));
        }
        let decoded = self.decoded(py);
        let (Some(sections), Some(known)) = (&decoded.sections, decoded.values.get(slot)) else {
            return self.ask_python(py, name);
        };
        let Some(section) = sections.value(self.content.as_bytes(py), index) else {
            return Ok(py.None().into_bound(py));
        };
        if let Some(value) = known.get() {
            return Ok(value.bind(py).clone());
        }
        let types = self.context.types.get();
        let found = match index {
            HEADER => types.header(py, section)?,
            PROPERTIES => types.properties(py, section)?,
            _ => types.map(py, section)?,
        };
        let value = match found {
            Some(value) => value,
            None => self.ask_python(py, name)?,
        };
        // Decoded once: whoever was first, all get the same object.
        let _ = known.set(value.clone().unbind());
        Ok(known.get().map_or(value, |value| value.bind(py).clone()))
    }
}

#[pymethods]
impl NativeMessage {
    #[getter]
    fn timestamp(&self) -> i64 {
        self.context.timestamp
    }

    #[getter]
    fn source(&self, py: Python<'_>) -> Py<PyString> {
        self.context.source.clone_ref(py)
    }

    #[getter]
    fn raw<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let content = self.content.bind(py);
        if !self.is_plain {
            return content.clone();
        }
        let body = content.as_bytes();
        let mut raw = Vec::with_capacity(body.len() + 8);
        match u8::try_from(body.len()) {
            Ok(length) => raw.extend_from_slice(&[0x00, 0x53, 0x75, 0xa0, length]),
            Err(_) => {
                raw.extend_from_slice(&[0x00, 0x53, 0x75, 0xb0]);
                // A message is shorter than 2 GiB, so this holds its size.
                raw.extend_from_slice(&(body.len() as u32).to_be_bytes());
            }
        }
        raw.extend_from_slice(body);
        PyBytes::new(py, &raw)
    }

    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let content = self.content.bind(py);
        if self.is_plain {
            return Ok(content.clone().into_any());
        }
        let message = content.as_bytes();
        let Some(sections) = &self.decoded(py).sections else {
            return self.ask_python(py, "body");
        };
        if let Some((start, end)) = sections.data_place(message) {
            if let Some(body) = message.get(start as usize..end as usize) {
                return Ok(PyBytes::new(py, body).into_any());
            }
        }
        if let Some(value) = sections.value(message, VALUE).and_then(Scalar::whole) {
            return self.context.types.get().value(py, value);
        }
        if sections.place(VALUE).is_none() && sections.place(SEQUENCE).is_none() {
            return Ok(py.None().into_bound(py));
        }
        self.ask_python(py, "body")
    }

    #[getter]
    fn body_kind<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.is_plain {
            return Ok(PyString::intern(py, "data").into_any());
        }
        let kind = match &self.decoded(py).sections {
            None => return self.ask_python(py, "body_kind"),
            Some(sections) if sections.place(DATA).is_some() => "data",
            Some(sections) if sections.place(SEQUENCE).is_some() => "sequence",
            Some(sections) if sections.place(VALUE).is_some() => "value",
            Some(_) => return Ok(py.None().into_bound(py)),
        };
        Ok(PyString::intern(py, kind).into_any())
    }

    #[getter]
    fn header<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.section(py, HEADER, 0, "header")
    }

    #[getter]
    fn delivery_annotations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.section(py, DELIVERY_ANNOTATIONS, 1, "delivery_annotations")
    }

    #[getter]
    fn message_annotations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.section(py, MESSAGE_ANNOTATIONS, 2, "message_annotations")
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.section(py, PROPERTIES, 3, "properties")
    }

    #[getter]
    fn application_properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.section(py, APPLICATION_PROPERTIES, 4, "application_properties")
    }

    #[getter]
    fn footer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.section(py, FOOTER, 5, "footer")
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.in_python(py)?.call_method0("to_dict")
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<message at offset {}, {} bytes>", self.offset, self.raw(py).as_bytes().len())
    }

    /// A copy, also in another process, is Python's message: it does not need this module.
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyAny>, MessageParts<'py>) {
        let context = &self.context;
        let make = context.types.get().any_message.bind(py).clone();
        (make, (self.offset, context.timestamp, self.raw(py), context.source.clone_ref(py)))
    }
}
