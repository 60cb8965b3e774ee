"""What a stream has on this node's disk, and the hard links that keep it there.

Read `pins` first: it makes the links. `walk` reads the chunk headers of one segment file, `disk_segment` and `disk_log`
say what is known of one segment and of all of them, and `slices` says which part of them to archive next. `stream_disk`
holds a stream's pins and log, and `disk_access` lets the agent's tasks use them in turn. `watch` and `disk_discovery`
find the files. Nothing here knows AWS or the broker's protocol, and nothing here writes to the broker's files.
"""
