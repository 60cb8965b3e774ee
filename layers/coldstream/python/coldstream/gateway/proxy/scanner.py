"""Cuts what one side sends into frames, and streams them on to the other.

What is read lies in a buffer that all connections of a loop share. Frames that pass are written on as they lie there,
a run of them at once; a frame that is larger than what was read streams on in pieces. Between two reads no more is
kept of a connection than the head of a frame, of 64 bytes at most, or a frame that is collected.

How the bytes were cut by the network makes no difference to anything but the size of runs.
"""

from __future__ import annotations

import struct
from collections.abc import Set as AbstractSet
from enum import Enum, auto
from typing import Final, Protocol

from coldstream.errors import BadFrameError, FrameTooLargeError
from coldstream.gateway.frames.deliver import DELIVER_HEAD_BYTES
from coldstream.gateway.frames.frame import KEY_BYTES, LENGTH_BYTES
from coldstream.gateway.frames.keys import Key
from coldstream.gateway.ports import Verdict
from coldstream.gateway.proxy.outlet import Outlet
from coldstream.units import KIB

SCRATCH_BYTES: Final = 256 * KIB
CHUNK_HEADER_BYTES: Final = 48

_HEAD = struct.Struct(">IHH")
_HEAD_BYTES = _HEAD.size
_DELIVER = int(Key.DELIVER)  # a plain number compares three times as fast
_PASS, _KEEP = Verdict.PASS, Verdict.KEEP


class FrameTaker(Protocol):
    """Decides what becomes of frames. It may send by the outlet: that goes out before the frame it is called for."""

    @property
    def keys(self) -> AbstractSet[int]:
        """Whose frames it takes whole."""

    def take(self, key: int, frame: bytes) -> bool:
        """Take a frame, with its length: True if it goes no further."""

    def deliver(self, subscription_id: int, version: int, head: memoryview) -> Verdict:
        """Decide about a chunk by its header."""

    def kept(self, subscription_id: int, version: int, frame: bytes) -> None:
        """Take a Deliver that was kept."""


class _Rest(Enum):
    """What becomes of the rest of a frame that has begun."""

    PASSES = auto()
    DROPPED = auto()
    COLLECTED = auto()


class FrameScanner:
    """The frames of one side. Call `scan` with what was read into `buffer()`, which is valid until then.

    `with_chunks` asks the taker about each Deliver. Raises BadFrameError for what cannot be a frame: the connection is
    then to be ended. `max_frame_bytes` and `max_taken_bytes` are lengths as frames have them in front.
    """

    __slots__ = (
        "_begun",
        "_carried",
        "_collected",
        "_left",
        "_outlet",
        "_rest",
        "_taker",
        "_view",
        "_with_chunks",
        "frames",
        "is_over",
        "max_frame_bytes",
        "max_taken_bytes",
    )

    def __init__(
        self,
        scratch: memoryview,
        taker: FrameTaker,
        outlet: Outlet,
        *,
        with_chunks: bool,
        max_frame_bytes: int,
        max_taken_bytes: int,
    ) -> None:
        self._view = scratch
        self._taker = taker
        self._outlet = outlet
        self._with_chunks = with_chunks
        self.max_frame_bytes = max_frame_bytes
        self.max_taken_bytes = max_taken_bytes
        self._carried = b""
        self._left = 0
        self._rest = _Rest.PASSES
        self._collected = bytearray()
        self._begun = (0, 0, 0)
        self.frames = 0
        self.is_over = False
        """Nothing more is to be done with what comes."""

    def buffer(self) -> memoryview:
        """Return where the next bytes belong."""
        carried = len(self._carried)
        if not carried:
            return self._view
        # Others have used the buffer since.
        self._view[:carried] = self._carried
        return self._view[carried:]

    def scan(self, read_bytes: int) -> None:
        """Take what was read. Raises BadFrameError."""
        # A frame of which a part has been written is written to its end, or what is sent after it would be misread.
        if self.is_over and not self._left:
            return
        end = len(self._carried) + read_bytes
        self._carried = b""
        # What is sent meanwhile waits for its place between two frames.
        self._outlet.hold()
        try:
            self._scan(end)
        finally:
            if not (self._left and self._rest is _Rest.PASSES):
                self._outlet.release()

    # In one piece: this is what is done for every frame, and a call costs as much as the rest of it.
    def _scan(self, end: int) -> None:  # noqa: C901, PLR0912, PLR0915
        view, outlet, taker = self._view, self._outlet, self._taker
        unpack, keys, with_chunks = _HEAD.unpack_from, taker.keys, self._with_chunks
        start = at = frames = 0
        if self._left:
            start, at = self._go_on(end)
        while end - at >= _HEAD_BYTES and not self.is_over:
            length, key, version = unpack(view, at)
            # Looked up for each frame: taking one may change it.
            if not KEY_BYTES <= length <= self.max_frame_bytes:
                break
            after = at + LENGTH_BYTES + length
            if key == _DELIVER and with_chunks:
                chunk = at + (9 if version == 1 else _head_bytes(version))
                if after < chunk + CHUNK_HEADER_BYTES:
                    raise BadFrameError(f"a Deliver of {length} bytes has no chunk")
                if end < chunk + CHUNK_HEADER_BYTES:
                    break
                verdict = taker.deliver(view[at + 8], version, view[chunk : chunk + CHUNK_HEADER_BYTES])
                if outlet.queue or verdict is not _PASS:
                    outlet.write(view[start:at])
                    outlet.flush()
                    start = at
                    if verdict is not _PASS:
                        self._keep_or_drop(verdict, at, after, end)
                        start = after
                if verdict is _PASS and after > end:
                    self._rest = _Rest.PASSES
            elif key in keys:
                if length > self.max_taken_bytes:
                    outlet.write(view[start:at])
                    too_long = f"a frame of key {key & 0x7FFF} has {length} bytes, of {self.max_taken_bytes}"
                    raise FrameTooLargeError(too_long)
                if after <= end:
                    is_taken = taker.take(key, bytes(view[at:after]))
                    if is_taken or outlet.queue:
                        outlet.write(view[start:at])
                        outlet.flush()
                        start = after if is_taken else at
                else:
                    outlet.write(view[start:at])
                    start = after
                    self._collect(key, 0, version, at, end)
            elif after > end:
                self._rest = _Rest.PASSES
            frames += 1
            at = after
        self.frames += frames
        if at >= end:
            self._left = at - end
            outlet.write(view[start:end])
            return
        outlet.write(view[start:at])
        length_bytes = int.from_bytes(view[at : at + LENGTH_BYTES])
        if end - at >= LENGTH_BYTES and not KEY_BYTES <= length_bytes <= self.max_frame_bytes:
            error = FrameTooLargeError if length_bytes > self.max_frame_bytes else BadFrameError
            raise error(f"a frame of {length_bytes} bytes, of {KEY_BYTES} to {self.max_frame_bytes}")
        self._carried = bytes(view[at:end])

    def _keep_or_drop(self, verdict: Verdict, at: int, after: int, end: int) -> None:
        view = self._view
        if verdict is not _KEEP:
            self._rest = _Rest.DROPPED
            return
        version = int.from_bytes(view[at + 6 : at + 8])
        if after > end:
            self._collect(_DELIVER, view[at + 8], version, at, end)
            return
        self._taker.kept(view[at + 8], version, bytes(view[at:after]))
        self._outlet.flush()

    def _go_on(self, end: int) -> tuple[int, int]:
        """Take more of the frame that has begun; return where what is not written yet begins, and the next frame."""
        part = min(self._left, end)
        self._left -= part
        if self._rest is _Rest.PASSES:
            if self._left or not self._outlet.queue:
                return 0, part + self._left
            self._outlet.write(self._view[:part])
            self._outlet.flush()
            return part, part
        if self._rest is _Rest.COLLECTED:
            self._collected += self._view[:part]
            if not self._left and not self.is_over:
                self._take_collected()
        return part + self._left, part + self._left

    def _collect(self, key: int, subscription_id: int, version: int, at: int, end: int) -> None:
        self._rest = _Rest.COLLECTED
        self._begun = key, subscription_id, version
        self._collected = bytearray(self._view[at:end])

    def _take_collected(self) -> None:
        (key, subscription_id, version), frame = self._begun, bytes(self._collected)
        self._collected = bytearray()
        if key == _DELIVER and self._with_chunks:
            self._taker.kept(subscription_id, version, frame)
            self._outlet.flush()
        else:
            is_taken = self._taker.take(key, frame)
            self._outlet.flush()
            if not is_taken:
                self._outlet.write(frame)


def _head_bytes(version: int) -> int:
    if version not in DELIVER_HEAD_BYTES:
        raise BadFrameError(f"a Deliver of version {version}")
    return DELIVER_HEAD_BYTES[version]
