"""How messages get to the partitions of a sharded stream: the hashes of exchanges and clients, byte for byte.

Pure: bytes and values in, numbers and names out. `murmur3.py` is what clients of super streams do, the rest what
exchanges of the broker do.
"""
