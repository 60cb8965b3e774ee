"""A world: the stores at the beginning, the actors, and what may befall them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from coldstream.errors import InvalidInputError
from coldstream.manifest.state import ManifestState
from coldstream.manifest.stream import StreamId
from coldstream.units import TimestampMs
from tests.explore.bucket_store import BucketState
from tests.explore.names_store import NamesState
from tests.explore.runs import Role


@dataclass(frozen=True, slots=True)
class Faults:
    """How often each may happen at most in one schedule, and whether others see changes by halves.

    `crashes` after a write, each followed by a new start; `losses` of the answer to a write; `refusals` of a request.
    """

    crashes: int = 0
    losses: int = 0
    refusals: int = 0
    by_halves: bool = False

    def __str__(self) -> str:
        told = "".join(f"{getattr(self, name)}{name[0]}" for name in ("crashes", "losses", "refusals"))
        return f"{told}{'h' if self.by_halves else ''}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what the text says: `2c0l1rh`."""
        text, is_half = text.removesuffix("h"), text.endswith("h")
        if len(text) != 6 or text[1::2] != "clr":
            raise InvalidInputError("faults", f"{text!r} is not as 1c0l2r")
        return cls(*map(int, text[::2]), by_halves=is_half)


@dataclass(frozen=True)
class World:
    """The stream, what the stores hold at first, and who is at work.

    A listing has `page` keys at a time.
    """

    stream: StreamId
    log: ManifestState
    recorded: Mapping[int, bytes]
    names: NamesState
    bucket: BucketState
    now: TimestampMs
    roles: Sequence[Role]
    announced: frozenset[int] = frozenset()
    """The offsets that are archived at first, or staged."""

    rival: bytes | None = None
    """A segment of another history, of which somebody stages a copy."""

    faults: Faults = field(default_factory=Faults)
    ahead_ms: Sequence[int] = ()
    """By actor, how far its clock is ahead of AWS's where it should be AWS's; () for none."""

    host_ahead_ms: int = 3_600_000
    page: int = 1000
    versioned: bool = False
