"""Trouble at hand: what an operator does with segments in quarantine and with events that failed for good.

`quarantined_segments` and `quarantine_actions` deal with what the upload function put aside, `dead_letters` with what
it could not handle. Begin there. `history` tells what changed a stream's manifest, and what it said at a time. Nothing
here runs on a schedule, and no function imports it.
"""
