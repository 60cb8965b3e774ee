"""The manifest as values: entries, gaps and heads of streams, and the plans that change them.

Everything here is pure: plans go from the state as read to the change to write, and `store` reads and writes. No AWS,
clock, environment or log. Begin with `entry`, the items of a stream; `change` is one transaction on them, planned by
`commit` for the write path and by `compaction`. `spec` says where to attach, `access` and `cluster` who may do what.
"""
