"""`FrameParts`: frames that are sent as the parts of a new object."""

from __future__ import annotations

from functools import partial

from coldstream.compact.part_upload import PartUpload
from coldstream.units import MIB

PART_BYTES = 8 * MIB
"""A part has at least so many bytes: a frame is never divided."""


class FrameParts:
    """Joins frames to parts. Whoever is done with the frames flushes what is left."""

    def __init__(self, upload: PartUpload) -> None:
        self._upload = upload
        self._part = bytearray()

    def add(self, data: bytes) -> None:
        """Take a frame, or the seek table."""
        self._part += data
        if len(self._part) >= PART_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what there is."""
        if self._part:
            # A copy: the buffer takes the next frames while a thread is still sending these.
            data = bytes(self._part)
            self._part.clear()
            self._upload.add(partial(self._upload.put, data=data))
