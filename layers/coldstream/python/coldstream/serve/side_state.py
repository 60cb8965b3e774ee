"""What the server knows of a stream beside its messages: key-values in the archive, by the stream's id.

    serve/{id}/deleted   it was deleted while forks of it existed: they go on reading it, and nobody else does
    serve/{id}/forked    it has, or had, forks; written before the first is created
    serve/{id}/used      when it was last used, milliseconds: only for a stream with a TTL, and not for every use
    serve/{id}/seq       the last Stream-Seq

A deletion first puts `deleted` and then looks for forks; a fork first puts `forked`, and after it was created looks for
`deleted`. So one of both sees the other, and no source is destroyed under a fork. Each read or write is one request.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.streams import KeyValues
from coldstream.units import TimestampMs

_DELETED, _FORKED, _USED, _SEQ = "deleted", "forked", "used", "seq"


@dataclass(frozen=True, slots=True)
class SideState:
    """The key-values of the stream `id`."""

    key_values: KeyValues
    id: str

    async def is_deleted(self) -> bool:
        """Whether the stream was deleted, and is only there for its forks."""
        return await self._get(_DELETED) is not None

    async def mark_deleted(self) -> None:
        """Let nobody but the forks see the stream."""
        await self._put(_DELETED, b"1")

    async def has_forks(self) -> bool:
        """Whether the stream has, or had, forks."""
        return await self._get(_FORKED) is not None

    async def mark_forked(self) -> None:
        """Note that a fork is about to be created."""
        await self._put(_FORKED, b"1")

    async def used(self) -> TimestampMs | None:
        """Return when the stream was last noted to be used."""
        found = await self._get(_USED)
        return None if found is None else TimestampMs(int(found))

    async def mark_used(self, at: TimestampMs) -> None:
        """Note a use."""
        await self._put(_USED, str(at).encode())

    async def last_seq(self) -> bytes | None:
        """Return the last Stream-Seq."""
        return await self._get(_SEQ)

    async def keep_seq(self, seq: bytes) -> None:
        """Note a Stream-Seq."""
        await self._put(_SEQ, seq)

    async def drop(self) -> None:
        """Forget everything: the stream is destroyed."""
        for name in (_DELETED, _FORKED, _USED, _SEQ):
            await self.key_values.delete(self._key(name))

    async def _get(self, name: str) -> bytes | None:
        return await self.key_values.get(self._key(name))

    async def _put(self, name: str, value: bytes) -> None:
        await self.key_values.put(self._key(name), value)

    def _key(self, name: str) -> str:
        return f"serve/{self.id}/{name}"
