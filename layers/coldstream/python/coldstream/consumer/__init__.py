"""The consumer: the archive and the broker read as one stream, without end.

For clients, with the extra `consumer`. It writes nothing to the archive and knows no AWS: the archive comes through
`read`, the broker through `live`. Begin with `follower.py`, which reads one stream. `base.py` runs followers;
`consumer.py` and `blocking.py` are its two faces. `ports.py` says what a follower needs of both sides. `sharded.py`
runs one follower for each partition of a logical name, and `gate.py` says in which order their batches come out.
"""
