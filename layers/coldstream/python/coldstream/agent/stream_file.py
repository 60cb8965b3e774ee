"""What the agent remembers of a stream between runs: a small file, always replaced as a whole.

    <state directory>/streams/<incarnation>.json    {"version": 1, "stream", "committed_to", "lost",
                                                     "committed_by"}

If the file is lost, the agent asks the broker and reads the manifest again. Two things cannot be found again: how far a
stream was committed that the broker has deleted since, and the losses that are not in the manifest yet.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from coldstream.errors import InvalidNameError
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.plain_json import read_json
from coldstream.units import ChunkId, Epoch, Offset

VERSION = 1


@dataclass(frozen=True, slots=True)
class PendingLoss:
    """Offsets that will never be archived, and why; not announced yet. `unseen`: no agent ever saw them."""

    first_offset: Offset
    next_offset: Offset
    reason: str
    unseen: bool = False


@dataclass(frozen=True, slots=True)
class Witness:
    """A chunk that is committed. Everything that its leader wrote before it in this epoch is committed, too."""

    chunk_id: ChunkId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class RememberedStream:
    """`stream` is None until its names are proven. Below `committed_to` everything is committed.

    More exactly: everything in the log of `committed_by`, the chunk that proved it; it is None if there is no other
    log. `lost` are the losses that the manifest does not have yet.
    """

    stream: StreamId | None = None
    committed_to: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    lost: tuple[PendingLoss, ...] = ()
    committed_by: Witness | None = None


class StreamFile:
    """The file of one stream."""

    def __init__(self, directory: Path, incarnation: Incarnation) -> None:
        self._incarnation = incarnation
        self._path = directory / f"{incarnation}.json"

    def load(self) -> RememberedStream:
        """Read the file; return an empty value if there is none, or none that can be read."""
        try:
            content = read_json(self._path.read_bytes())
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

    def save(self, remembered: RememberedStream, *, durably: bool = False) -> None:
        """Write the file so that a crash leaves either the old one or the new one.

        With `durably`, the new one is on the disk when this returns. Raises OSError, as on a full disk.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Not `.json`: whoever lists the streams by their files must not come upon one that is half written.
        fresh = self._path.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump({"version": VERSION, **asdict(remembered)}, file, ensure_ascii=False)
            if durably:
                # Before the rename: a power cut could else leave the new name with an empty file.
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(self._path)
        if durably:
            # The rename is in the directory, which has to reach the disk as well.
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def forget(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
