"""AMQP 1.0, the format of the messages in a chunk.

`message` reads the messages of a chunk, and is where to begin. It decodes with `sections`, the parts of a message, and
`values`, the type system; `json` shows a message to people. Nothing here encodes: publishers do that.
"""
