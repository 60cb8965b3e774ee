"""A directory bucket of S3 Express One Zone, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from coldstream.errors import InvalidInputError
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.object_values import ListedObject


class DirectoryBucket(MemoryObjects):
    """Lists in no order, under prefixes that end in "/" alone, and never from a key on."""

    def keys(self, prefix: str) -> Iterator[str]:
        if not prefix.endswith("/"):
            raise InvalidInputError("prefix", f"{prefix!r} does not end in a delimiter")
        yield from sorted(super().keys(prefix), key=lambda key: sha256(key.encode()).digest())

    def listed(self, prefix: str, *, after: str | None = None) -> Iterator[ListedObject]:
        raise InvalidInputError("after", "a directory bucket begins no listing after a key")
