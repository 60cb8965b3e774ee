"""Groups of consumers that share the partitions of a sharded stream, by leases in the manifest table.

`group_state.py` is the pure part: who has what, and what a member may take. `session.py` is what a member does at the
table, `member.py` runs it in an event loop. Nothing here reads messages.
"""
