"""What the agent remembers of a stream between runs: small, replaced as a whole, and made anew where it is lost.

    <state directory>/streams/<incarnation>.json    {"version": 1, "stream", "committed_to", "lost",
                                                     "committed_by"}

Losing it costs the broker another question and the manifest another look, except for `committed_to` of a stream that
the broker has deleted meanwhile, and losses not yet in the manifest.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from coldstream.errors import InvalidNameError
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId, Epoch, Offset

VERSION = 1


@dataclass(frozen=True, slots=True)
class PendingLoss:
    """Offsets that will never be archived, and why. `unseen`: no agent ever saw them."""

    first_offset: Offset
    next_offset: Offset
    reason: str
    unseen: bool = False


@dataclass(frozen=True, slots=True)
class Witness:
    """A chunk that is committed: what its leader wrote before it in this epoch is so too."""

    chunk_id: ChunkId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class RememberedStream:
    """`stream` is proven to be what the incarnation belongs to; below `committed_to` everything is committed.

    That is, everything in the log of the chunk that proved it, `committed_by`; None where there is no other log.
    `lost` are losses that the manifest does not have yet.
    """

    stream: StreamId | None = None
    committed_to: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    lost: tuple[PendingLoss, ...] = ()
    committed_by: Witness | None = None


class StreamFile:
    """The memory of one stream on disk."""

    def __init__(self, directory: Path, incarnation: Incarnation) -> None:
        self._incarnation = incarnation
        self._path = directory / f"{incarnation}.json"

    def load(self) -> RememberedStream:
        """Read it; an empty one where there is none, or none that can be read."""
        try:
            content = json.loads(self._path.read_bytes())
            if content.pop("version") != VERSION:
                return RememberedStream()
            names = content["stream"]
            return RememberedStream(
                StreamId(names["vhost"], names["name"], self._incarnation) if names else None,
                Offset(int(content["committed_to"])),
                tuple(PendingLoss(**loss) for loss in content["lost"]),
                Witness(**content["committed_by"]) if content["committed_by"] else None,
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, InvalidNameError):
            return RememberedStream()

    def save(self, memory: RememberedStream, *, durably: bool = False) -> None:
        """Write it so that a crash leaves the old one or the new one; `durably`, the new one, once this returns.

        Raises OSError, as on a full disk.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump({"version": VERSION, **asdict(memory)}, file, ensure_ascii=False)
            if durably:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(self._path)
        if durably:
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def forget(self) -> None:
        """Remove it."""
        self._path.unlink(missing_ok=True)
