"""Garbage: objects that nothing names, and nothing can name any more, found by proof, and deleted if asked.

`kinds` is the table of everything that the bucket may hold, with what proves each to be garbage; docs/garbage.md shows
it. `run` walks the bucket once and asks, by kind, `fragments`, `staged`, `quarantined` or `unfinished`. What the
manifest named once and removed is not garbage: it has a tombstone, and the sweep deletes it.
"""
