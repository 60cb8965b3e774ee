"""The archive as the gateway asks for it: where a stream begins and ends, its chunks, and stored offsets.

Here live the port (`port.py`, where to begin), its double in memory, and the implementation on the manifest's table and
the bucket. Nothing here knows the stream protocol, connections or credits. All of it is for the thread of one event
loop; what blocks is called in threads, and nothing waits for a call that hangs.
"""
