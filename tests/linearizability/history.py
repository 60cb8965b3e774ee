"""`History`: what the clients of one direct stream called, and what they were told, as the checker reads it.

    recorder = History("seed 7")
    call = recorder.call(client=1, kind="append", handle=3, at=120, messages=2, batch=batch_digest([b"a", b"b"]))
    call.returns(at=180, base=0, epoch=1)

A call that never returns, or whose answer says that it may have taken effect, is left as it is: unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

Value = str | int | bool | None


@dataclass(slots=True)
class Call:
    """One call: its facts by the names that the checker has for them."""

    facts: dict[str, Value]

    def returns(self, *, at: int, outcome: str = "ok", **facts: Value) -> None:
        """Say when it returned, and with what."""
        self.facts |= {"return": at, "outcome": outcome, **facts}

    @property
    def time(self) -> int:
        """When it was made."""
        made = self.facts["call"]
        assert isinstance(made, int)
        return made

    @property
    def is_unknown(self) -> bool:
        return self.facts["outcome"] == "unknown"


@dataclass(slots=True)
class History:
    """The calls on one stream. `gaps`: tracking chunks may lie between batches."""

    name: str
    first: int = 0
    gaps: bool = False
    calls: list[Call] = field(default_factory=list)

    def call(self, *, client: int, kind: str, at: int, handle: int = 0, **facts: Value) -> Call:
        """Record that a call is made."""
        known = {"client": client, "kind": kind, "call": at, "handle": handle, "return": None, "outcome": "unknown"}
        made = Call({**known, **facts})
        self.calls.append(made)
        return made

    def to_json(self) -> str:
        """Return the line that the checker reads. Reads that failed say nothing, and are left out."""
        calls = [one.facts for one in self.calls if not (one.is_unknown and one.facts["kind"] in {"read", "tail"})]
        return json.dumps({"history": self.name, "first": self.first, "gaps": self.gaps, "operations": calls})


def batch_digest(messages: Iterable[bytes]) -> str:
    """Return the digest of a batch: 64 bits in hexadecimal, other ones for other messages."""
    whole = sha256()
    for one in messages:
        whole.update(len(one).to_bytes(4, "big") + one)
    return whole.hexdigest()[:16]


def stream_digest(batches: Sequence[tuple[int, str]], *, gaps: bool = False) -> str:
    """Return the digest of a stream of batches, each with its base offset and its digest. The checker does the same."""
    digest = bytes(8)
    for base, batch in batches:
        digest = sha256(digest + (0 if gaps else base).to_bytes(8, "big") + bytes.fromhex(batch)).digest()[:8]
    return digest.hex()
