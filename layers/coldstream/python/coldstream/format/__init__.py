"""The formats: bytes to values and back, for segments, chunks, entries, indexes, fragments and AMQP messages.

Everything here is pure: no I/O, AWS, clock, environment or log. Each format file opens with its byte layout; nobody
else parses these bytes or combines CRCs. Begin with `segment`, `chunk` and `entry`; `scanner` verifies whole segments
as they stream by, and `fragment` is the object that the archive stores.
"""
