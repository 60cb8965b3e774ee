"""Frames of the stream protocol as values, both ways: pure, no I/O. Begin with `frame.py`, then `requests.py`."""
