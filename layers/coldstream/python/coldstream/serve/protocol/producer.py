"""Idempotent producers: an epoch and a number for each request, so that a repeated one appends nothing.

They map to the stream's own deduplication: the producer is a publisher, and its publishing id has the epoch in the
upper 32 bits and the number in the lower 32. So the state is in the stream, with the data, and survives what the data
survive. Its bounds are those of the format: epochs and numbers below 2^32, and the 255 newest producers of a stream;
a producer that 255 others followed is new again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256

from coldstream.errors import InvalidInputError

ID, EPOCH, SEQ = "Producer-Id", "Producer-Epoch", "Producer-Seq"
_BITS = 32
_LIMIT = 1 << _BITS
_MAX_DIGITS = 16
_MAX_NAME_BYTES = 200
_PREFIX = "producer:"
_HASHED = "producer-sha256:"


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a stream has of a producer: its epoch, and the number of its last request in it."""

    epoch: int
    seq: int

    @classmethod
    def of_publishing_id(cls, publishing_id: int) -> ProducerState:
        """Split a publishing id."""
        return cls(publishing_id >> _BITS, publishing_id & (_LIMIT - 1))

    @property
    def publishing_id(self) -> int:
        """The state as the stream's deduplication has it."""
        return self.epoch << _BITS | self.seq


class Judgement(Enum):
    """What becomes of a producer's request."""

    ACCEPT = "accept"
    DUPLICATE = "duplicate"
    STALE_EPOCH = "stale epoch"
    GAP = "gap"
    EPOCH_MUST_START_AT_ZERO = "an epoch starts at number 0"


@dataclass(frozen=True, slots=True)
class ProducerRequest:
    """The three headers of a request."""

    id: str
    state: ProducerState

    @property
    def publisher(self) -> str:
        """The producer's name as a publisher, at most 255 bytes of UTF-8: a long one is hashed."""
        if len(self.id.encode()) <= _MAX_NAME_BYTES:
            return _PREFIX + self.id
        return _HASHED + sha256(self.id.encode()).hexdigest()

    def judge(self, last: ProducerState | None) -> Judgement:
        """Compare with what the stream has of the producer."""
        new = self.state
        if last is None:
            # Whatever its epoch: the number says whether a request is missing.
            return Judgement.ACCEPT if new.seq == 0 else Judgement.GAP
        if new.epoch < last.epoch:
            return Judgement.STALE_EPOCH
        if new.epoch > last.epoch:
            return Judgement.ACCEPT if new.seq == 0 else Judgement.EPOCH_MUST_START_AT_ZERO
        if new.seq <= last.seq:
            return Judgement.DUPLICATE
        return Judgement.ACCEPT if new.seq == last.seq + 1 else Judgement.GAP


def parse_producer(headers: Mapping[str, str]) -> ProducerRequest | None:
    """Read the three headers; None if none is there. Raises InvalidInputError."""
    present = [name for name in (ID, EPOCH, SEQ) if headers.get(name) is not None]
    if not present:
        return None
    if len(present) < len((ID, EPOCH, SEQ)):
        raise InvalidInputError(present[0], f"comes with all of {ID}, {EPOCH} and {SEQ}, or not at all")
    if not headers[ID]:
        raise InvalidInputError(ID, "is empty")
    return ProducerRequest(headers[ID], ProducerState(_number(headers, EPOCH), _number(headers, SEQ)))


def _number(headers: Mapping[str, str], name: str) -> int:
    text = headers[name]
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise InvalidInputError(name, f"{text[:40]!r} is no whole number")
    if int(text) >= _LIMIT:
        raise InvalidInputError(name, f"is {_LIMIT - 1} at most here")
    return int(text)
