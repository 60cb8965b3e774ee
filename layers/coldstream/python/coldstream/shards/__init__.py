"""Sharded streams at a broker: declared by definition, shown, grown, halved, replaced, and taken away.

The map in the manifest says what a sharded stream is (`manifest.shard_map`); here it is brought about at the broker.
Begin with `broker_port.py`: all that is asked of one. Nothing here reads messages.
"""
