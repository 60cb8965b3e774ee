//! Chunks decoded in one pass: messages for readers, and columns of rows in Arrow's layout.
//!
//! Everything here has an implementation in Python, which is the one that decides: what is wrong, rare or in doubt is
//! declined, and Python reads it again. So results and errors are those of Python, whether this module is there or not.

mod amqp;
mod chunk;
mod columns;
mod decoder;
mod entry;
mod memory;
mod message;
mod messages;
mod read;
mod row;
mod rows;
mod runs;
mod scan;
mod unpacked;
mod verified;

use pyo3::prelude::*;

/// Raised with each change of what Python calls: a module of another build is not used.
const CONTRACT: u32 = 5;

#[pymodule]
fn _coldstream_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("CONTRACT", CONTRACT)?;
    module.add_class::<decoder::MessageTypes>()?;
    module.add_class::<message::NativeMessage>()?;
    module.add_class::<messages::NativeMessages>()?;
    module.add_class::<rows::NativeRows>()?;
    module.add_class::<rows::NativeBatch>()?;
    module.add_function(wrap_pyfunction!(runs::entry_runs, module)?)?;
    module.add_function(wrap_pyfunction!(runs::join_messages, module)?)?;
    module.add_function(wrap_pyfunction!(verified::verified_end, module)?)?;
    module.add_function(wrap_pyfunction!(verified::verified_to, module)?)?;
    Ok(())
}
