"""The agent beside a RabbitMQ node: it pins segments, proves them committed, and delivers them.

Begin with `archiver`, which runs the three tasks of one stream over one `stream_progress`: `pinning`, `proof.proving`
and `stream_delivery`. A discovery (`disk.disk_discovery`, or `recording.protocol_discovery`) finds the streams and
has `archiver_pool` start an archiver for each. `run` puts everything together.

disk/       the segments on this node's disk, and the links that keep them
proof/      which stream a directory is, and what of it is committed: what the broker delivers is
recording/  the same segments rebuilt from deliveries, where the disk cannot be seen
monitor/    status, metrics and the checks before a start

Only `archive` calls AWS, by `ingest` and `store`. Nothing here writes to the manifest: the upload function does.
"""
