//! What Python lends to the messages: the classes of its values, and the implementation that decides in doubt.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple};

use crate::amqp::scalar::{Elements, Scalar};

const HEADER_FIELDS: usize = 5;
const PROPERTIES_FIELDS: usize = 13;

/// The classes and functions of `coldstream.format.amqp` that messages are made with; made once, by `message.py` there.
#[pyclass(frozen, module = "_coldstream_native")]
pub struct MessageTypes {
    /// offset, timestamp, raw, source -> the message as Python reads it
    pub any_message: Py<PyAny>,
    /// compression, packed, uncompressed bytes -> bytes or a bytearray, or None if they cannot be unpacked
    pub unpack: Py<PyAny>,
    header: Py<PyAny>,
    properties: Py<PyAny>,
    symbol: Py<PyAny>,
    char: Py<PyAny>,
    timestamp: Py<PyAny>,
    decimal: Py<PyAny>,
    uuid: Py<PyAny>,
}

#[pymethods]
impl MessageTypes {
    #[new]
    #[pyo3(signature = (*, any_message, unpack, header, properties, symbol, char, timestamp, decimal, uuid))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        any_message: Py<PyAny>,
        unpack: Py<PyAny>,
        header: Py<PyAny>,
        properties: Py<PyAny>,
        symbol: Py<PyAny>,
        char: Py<PyAny>,
        timestamp: Py<PyAny>,
        decimal: Py<PyAny>,
        uuid: Py<PyAny>,
    ) -> Self {
        Self { any_message, unpack, header, properties, symbol, char, timestamp, decimal, uuid }
    }
}

impl MessageTypes {
    pub fn value<'py>(&self, py: Python<'py>, value: Scalar<'_>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match value {
            Scalar::Null => py.None().into_bound(py),
            Scalar::Boolean(is_true) => PyBool::new(py, is_true).to_owned().into_any(),
            Scalar::Unsigned(number) => PyInt::new(py, number).into_any(),
            Scalar::Signed(number) => PyInt::new(py, number).into_any(),
            Scalar::Float(number) => PyFloat::new(py, number).into_any(),
            Scalar::Text(text) => PyString::new(py, text).into_any(),
            Scalar::Binary(bytes) => PyBytes::new(py, bytes).into_any(),
            Scalar::Symbol(text) => self.symbol.bind(py).call1((text,))?,
            Scalar::Char(one) => self.char.bind(py).call1((one,))?,
            Scalar::Timestamp(ms) => self.timestamp.bind(py).call1((ms,))?,
            Scalar::Decimal(bytes) => self.decimal.bind(py).call1((PyBytes::new(py, bytes),))?,
            Scalar::Uuid(bytes) => self.uuid.bind(py).call1((PyBytes::new(py, bytes),))?,
        })
    }

    pub fn header<'py>(&self, py: Python<'py>, section: &[u8]) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.fields(py, section, &self.header, HEADER_FIELDS)
    }

    pub fn properties<'py>(&self, py: Python<'py>, section: &[u8]) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.fields(py, section, &self.properties, PROPERTIES_FIELDS)
    }

    /// Return a map as a dict; None if it is damaged, or holds more than simple values.
    pub fn map<'py>(&self, py: Python<'py>, section: &[u8]) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(mut elements) = Elements::of(section, true) else {
            return Ok(None);
        };
        let pairs = PyDict::new(py);
        loop {
            match elements.read() {
                Some(Some(key)) => {
                    let Some(Some(value)) = elements.read() else {
                        return Ok(None);
                    };
                    pairs.set_item(self.value(py, key)?, self.value(py, value)?)?;
                }
                Some(None) => return Ok(Some(pairs.into_any())),
                None => return Ok(None),
            }
        }
    }

    fn fields<'py>(
        &self,
        py: Python<'py>,
        section: &[u8],
        make: &Py<PyAny>,
        most: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(mut elements) = Elements::of(section, false).filter(|elements| elements.left() <= most) else {
            return Ok(None);
        };
        let mut values = Vec::with_capacity(most);
        loop {
            match elements.read() {
                Some(Some(value)) => values.push(self.value(py, value)?),
                Some(None) => break,
                None => return Ok(None),
            }
        }
        values.resize_with(most, || py.None().into_bound(py));
        // A named tuple, made of a tuple as `tuple.__new__` does.
        Ok(Some(make.bind(py).call1((PyTuple::new(py, values)?,))?))
    }
}
