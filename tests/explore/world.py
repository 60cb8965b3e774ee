"""A world: the stores at the beginning, the actors, and what may befall them."""

from __future__ import annotations

import re
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

SMALL_PAGE = 2
"""Objects of a listing, and items of a Query, that come at a time if they come by pages."""

_COUNTED = {"crashes": "c", "losses": "l", "refusals": "r", "partial_deletions": "d", "clock_steps": "s"}
_KINDS = {"by_halves": "h", "index_lags": "i", "by_pages": "p", "is_versioned": "v", "is_new": "n"}
_TEXT = re.compile(r"(\d)c(\d)l(\d)r(?:(\d)d)?(?:(\d)s)?(h?i?p?v?n?)")


@dataclass(frozen=True, slots=True)
class Faults:
    """How often each may happen at most in one schedule, and what the stores are like.

    `crashes` after a write, each followed by a new start; `losses` of the answer to a write; `refusals` of a request;
    `partial_deletions` of several objects of which only some go; `clock_steps` of hosts' clocks.
    """

    crashes: int = 0
    losses: int = 0
    refusals: int = 0
    partial_deletions: int = 0
    clock_steps: int = 0
    by_halves: bool = False
    """Others see a transaction by halves until its writer goes on."""

    index_lags: bool = False
    """The index by time shows any state of each item since somebody waited last."""

    by_pages: bool = False
    """Listings and Queries come by two at a time."""

    is_versioned: bool = False
    """The bucket keeps versions."""

    is_new: bool = False
    """Nothing of the stream is archived at first."""

    def __str__(self) -> str:
        told = [
            f"{count}{sign}" for name, sign in _COUNTED.items() if (count := getattr(self, name)) or sign in {*"clr"}
        ]
        return "".join([*told, *(sign for name, sign in _KINDS.items() if getattr(self, name))])

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what the text says: `2c0l1r`, `1c0l0r1d2shipvn`."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise InvalidInputError("faults", f"{text!r} is not as 1c0l2r")
        *counts, kinds = found.groups()
        return cls(*(int(one or 0) for one in counts), **{name: sign in kinds for name, sign in _KINDS.items()})

    @property
    def page(self) -> int | None:
        """How many come at a time; None if all come at once."""
        return SMALL_PAGE if self.by_pages else None


@dataclass(frozen=True)
class World:
    """The stream, what the stores hold at first, and who is at work."""

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
