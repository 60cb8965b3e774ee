"""Segments on the broker's disk: noticed, pinned by hard links, and walked by their chunk headers.

`disk_discovery.py` is the way in: it finds the streams. `watch.py` tells it at once what came, `pins.py` keeps what the
broker would delete. Nothing here asks the broker or AWS, and nothing here writes to the broker's files.
"""
