"""Items that are of no stream, and that several processes change: each write is conditional on the revision it read.

Shard maps and the consumers of a group are such items. What is in one is its owner's; the table sees bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from coldstream.errors import InvalidInputError

MAX_STATE_BYTES = 300_000
"""Bytes of one item; DynamoDB takes 400 KB with the keys."""

MAX_STATE_ITEMS = 100
"""Items of one transaction: DynamoDB's limit."""

MAX_STATES_BYTES = 3_000_000
"""Bytes of one transaction; DynamoDB takes 4 MB with the keys."""

_MAX_KEY_BYTES = 1024
"""DynamoDB's limit of a sort key."""

_PARTITION = re.compile(r"#[a-z-]{1,100}(#[0-9a-f]{64})?")


@dataclass(frozen=True, slots=True)
class StateItem:
    """The item `key` of `partition`, at `revision`: 1 when it is written first, and one more with each write.

    A partition's name begins with "#", as no incarnation does, and may go on with the hash of a stream's names.
    """

    partition: str
    key: str
    revision: int
    data: bytes

    def __post_init__(self) -> None:
        if not _PARTITION.fullmatch(self.partition):
            raise InvalidInputError("partition", f"{self.partition[:80]!r} is no partition of state items")
        if not 1 <= len(self.key.encode(errors="surrogatepass")) <= _MAX_KEY_BYTES or not self.key.isprintable():
            raise InvalidInputError("key", f"{self.key[:80]!r} is no key of a state item")
        if self.revision < 1:
            raise InvalidInputError("revision", f"{self.revision} is less than 1")
        if len(self.data) > MAX_STATE_BYTES:
            raise InvalidInputError("data", f"has {len(self.data)} bytes, of {MAX_STATE_BYTES} at most")


def check_states(changed: Sequence[StateItem]) -> None:
    """Refuse what no transaction holds: none, more than MAX_STATE_ITEMS, MAX_STATES_BYTES, or an item twice.

    Raises InvalidInputError.
    """
    if not 0 < len({(item.partition, item.key) for item in changed}) == len(changed) <= MAX_STATE_ITEMS:
        raise InvalidInputError("state items", f"are {len(changed)}: 1 to {MAX_STATE_ITEMS}, each once")
    if (size := sum(len(item.data) for item in changed)) > MAX_STATES_BYTES:
        raise InvalidInputError("state items", f"have {size} bytes, of {MAX_STATES_BYTES} at most")
