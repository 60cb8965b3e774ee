"""Bounds on work in flight: `window` for calls, `bandwidth` for bytes a second, `pace` for messages a second.

`frame_sink` compresses within such a window.

Shared by everything that reads, uploads or publishes. Nothing here knows streams, AWS or the broker.
"""
