"""Bytes to values and back: segments, indexes, chunks, entries, fragments. Pure: no AWS, clock or environment."""
