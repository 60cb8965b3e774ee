"""Streams recorded as a consumer reads them, for brokers whose disk cannot be seen.

`protocol_discovery.py` decides which incarnations to record. `recorder.py` reads one, `spool_writer.py` cuts what was
read into segments, and `spool.py` keeps those on the disk, where the archiver takes them as it takes pins.
"""
