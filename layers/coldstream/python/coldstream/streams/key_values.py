"""`KeyValues`: small values by key, beside the streams, in the same table.

Each is a state item of the partition `#direct-keys`, and every write is conditional on the revision that it read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from coldstream.errors import LostRaceError, OutcomeUnknownError
from coldstream.manifest.state_item import StateItem
from coldstream.store.ports import ManifestTable
from coldstream.store.races import retry_lost_races

DIRECT_KEYS = "#direct-keys"

_T = TypeVar("_T")


class BlockingCall(Protocol):
    """Runs blocking requests in a thread."""

    def __call__(self, work: Callable[[], _T], /) -> Awaitable[_T]:
        """Return what they return. Raises StreamClosedError once the client is closed."""
        ...


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Values of up to 300,000 bytes, by keys of 1 to 1,024 bytes of printable text, for all clients of an archive.

    Every method raises InvalidInputError for a key or a value that is not so, UnavailableError, and StreamClosedError
    once the client is closed.
    """

    table: ManifestTable
    call: BlockingCall

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key, None if there is none. Cost: one GetItem, strongly consistent."""

        def get() -> bytes | None:
            item = self._read(key)
            return None if item is None else item.data

        return await self._call(get)

    async def put(self, key: str, value: bytes) -> None:
        """Write a value, over any that is there. Cost: one GetItem and one PUT, a KB each; more after lost races."""
        _item(key, value, 1)  # before any request

        def put() -> None:
            item = self._read(key)
            changed = _item(key, value, 1 if item is None else item.revision + 1)
            try:
                self.table.put_state(changed)
            except OutcomeUnknownError:
                # If it is there, it happened, and sent again it would undo what others write from now on.
                if self._read(key) != changed:
                    raise

        await self._call(lambda: retry_lost_races(put))

    async def put_if_absent(self, key: str, value: bytes) -> bytes:
        """Write a value unless there is one, and return what is there now: `value`, or what was there before.

        Of several callers at a time, one writes, and all return what it wrote. Cost: one PUT, and one GetItem if there
        is a value.
        """

        def put() -> bytes:
            new = _item(key, value, 1)
            try:
                self.table.put_state(new)
            except (LostRaceError, OutcomeUnknownError):
                # After an answer that never came: what is there says whether this, or another, was written.
                found = self._read(key)
                if found is None:
                    raise  # nothing yet, or no more: once again
                return found.data
            return value

        return await self._call(lambda: retry_lost_races(put))

    async def delete(self, key: str) -> bool:
        """Delete a key; return whether it was there. Cost: one GetItem and one DELETE."""

        def delete() -> bool:
            item = self._read(key)
            if item is None:
                return False
            try:
                self.table.delete_state(item)
            except OutcomeUnknownError:
                # Gone, or another by now: sent again, it would delete what others wrote meanwhile.
                if self._read(key) == item:
                    raise
            return True

        return await self._call(lambda: retry_lost_races(delete))

    def _read(self, key: str) -> StateItem | None:
        return self.table.state_item(DIRECT_KEYS, _item(key, b"", 1).key)

    async def _call(self, work: Callable[[], _T]) -> _T:
        return await self.call(work)


def _item(key: str, value: bytes, revision: int) -> StateItem:
    """Return the item. Raises InvalidInputError: a malformed key must not get as far as a request."""
    return StateItem(DIRECT_KEYS, key, revision, value)
