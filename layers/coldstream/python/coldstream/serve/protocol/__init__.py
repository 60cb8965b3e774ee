"""The Durable Streams protocol as values: what headers and queries say, and what answers look like. No I/O."""
