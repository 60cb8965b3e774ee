//! AMQP 1.0 messages: what is common in them. The rest is left to `coldstream/format/amqp`, by returning None.

pub mod scalar;
pub mod sections;
pub mod text;
