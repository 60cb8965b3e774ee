"""The gateway: a proxy of the stream protocol that serves from the archive what the broker has no longer.

`frames/` has the protocol as values. Nothing else in the package makes or parses frames.
`figures.py` is what a process counts: each part is given the one object, and adds to its own fields.
`gap_rules.py` says what becomes of a subscription that meets a gap, whoever serves it.
"""
