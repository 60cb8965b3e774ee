"""The recorded logs of a real broker: tests/golden, and the manifest that says what was published into them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from tests.support.osiris import OsirisChunk

GOLDEN = Path(__file__).parents[1] / "golden"
MANIFEST = GOLDEN / "manifest.json"


@dataclass(frozen=True, slots=True)
class GoldenLog:
    """One recorded stream.

    `messages` are digests of what a consumer gets, in order; `chunks` is osiris's reading of every chunk of any type.
    """

    stream: str
    vhost: str
    incarnation: str
    messages: list[str]
    chunks: list[OsirisChunk]

    @property
    def directory(self) -> Path:
        """Where its segments and indexes are."""
        return GOLDEN / self.incarnation

    @property
    def segments(self) -> list[Path]:
        """The segment files, in order; the last one had not been rolled."""
        return sorted(self.directory.glob("*.segment"))


def digest(message: bytes | memoryview) -> str:
    """Return what the manifest holds of a message: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(message).hexdigest()[:16]


def golden_logs() -> list[GoldenLog]:
    """Return every recorded log."""
    manifest = json.loads(MANIFEST.read_text())
    return [
        GoldenLog(
            stream,
            manifest["vhost"],
            log["incarnation"],
            log["messages"],
            [OsirisChunk(*chunk) for chunk in log["chunks"]],
        )
        for stream, log in manifest["logs"].items()
    ]
