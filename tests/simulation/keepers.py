"""Who keeps the archive: people who erase messages, hold offsets, and delete the stream and want it back.

All of it is shipped code on stores that fail and have it die. What they were promised is in `answered_holds` and in
`erased.py`; `watched.py` holds each change and deletion against that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

from coldstream.erase.resume import resume_erasures
from coldstream.erase.run import Eraser, unfinished_erasures
from coldstream.erase.selection import Selection
from coldstream.errors import ColdstreamError, HeldError, InvalidQueryError, NotDeletedError
from coldstream.lifecycle.deletion import delete_stream, undelete_stream
from coldstream.lifecycle.holds import put_hold, release_hold
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.units import Offset
from tests.explore.base import DAY_MS, INCARNATION, STREAM
from tests.simulation.stores import Trouble, Troubled
from tests.simulation.watched import SimulatedStores
from tests.support.compacting import Killed

HOUR_S = 3600.0
MOST_ERASED = 8


class Keepers:
    """All of them. `erases`, `holds` and `deletes` say what happens in this world."""

    def __init__(self, seed: int, stores: SimulatedStores, say: Callable[[str], None]) -> None:
        self._rng = rng = random.Random(f"keepers {seed}")
        self.trouble = Trouble(rng)
        self.erases = rng.random() < 0.5
        self.holds = rng.random() < 0.5
        self.deletes = rng.random() < 0.25
        self.done: dict[str, int] = {}
        self._stores = stores
        self._table = Troubled(stores.table, self.trouble)
        self._objects = Troubled(stores.objects, self.trouble)
        self._say = say

    def plans(self) -> list[tuple[float, Callable[[], object]]]:
        """Return what happens how often, in seconds."""
        return [
            *([(0.4 * HOUR_S, self._erase), (0.5 * HOUR_S, self._resume)] if self.erases else []),
            *([(0.6 * HOUR_S, self._hold)] if self.holds else []),
            *([(0.7 * HOUR_S, self._delete)] if self.deletes else []),
            (0.5 * HOUR_S, self._have_trouble),
        ]

    def mend(self) -> None:
        """Have everything work, and the stream be there."""
        self.trouble.failing = self.trouble.dying = 0.0
        self._undelete()
        for one in self._stores.table.holds(INCARNATION):
            self._release(one.id)
        head = self._stores.head
        assert head is None or not head.is_deleted, "the deletion cannot be undone"

    def finish(self) -> None:
        """Go on with what was interrupted, as the erase function does."""
        for one in resume_erasures(Eraser(self._open()), [STREAM]):
            assert one.error is None, f"an erasure that was interrupted does not go on: {one.error!r}"
        left = unfinished_erasures(self._open(), INCARNATION)
        assert not left, f"erasures are left: {left}"

    def figures(self) -> dict[str, int]:
        """Return what was done."""
        return self.done | {"messages erased": len(self._stores.erased.offsets)}

    def _erase(self) -> None:
        head = self._stores.head
        if head is None or head.next_offset is None or head.first_offset is None:
            return
        first = self._rng.randrange(head.first_offset, max(head.next_offset, head.first_offset + 1))
        selection = Selection(Offset(first), Offset(first + self._rng.randrange(1, MOST_ERASED)))
        with_copies = self._rng.random() < 0.5

        def work() -> None:
            eraser = Eraser(self._open())
            erasure, _, _ = eraser.begin(STREAM, selection, reason="a ticket", by="alice", with_copies=with_copies)
            self._count("erasures begun")
            eraser.run(STREAM, erasure, selection)

        self._as_person(f"erase {first} to {selection.next_offset}", work)

    def _resume(self) -> None:
        def work() -> None:
            eraser = Eraser(self._open())
            for one in unfinished_erasures(eraser.stores, INCARNATION):
                eraser.run(STREAM, one, Selection.from_text(one.where, source="an erasure"))
                self._count("erasures gone on with")

        self._as_person("resume erasures", work)

    async def _hold(self) -> None:
        head = self._stores.head
        if head is None:
            return
        first = Offset(self._rng.randrange((head.next_offset or 0) + 1))
        end = self._rng.choice([None, Offset(first + 1), Offset(first + 40)])
        before = set(self._stores.table.state.holds)

        def work() -> None:
            hold = put_hold(
                self._open(), INCARNATION, first_offset=first, next_offset=end, reason="a case", by="legal", wait=_leave
            )
            self._stores.answered_holds.add(hold.id)

        self._as_person(f"hold {first} to {end}", work)
        await asyncio.sleep(self._rng.choice([60, 600, 1800]))
        for hold_id in set(self._stores.table.state.holds) - before:
            self._release(hold_id)

    def _release(self, hold_id: str) -> None:
        # From its beginning on: whether its answer comes or not, it may be released.
        self._stores.answered_holds.discard(hold_id)
        self._as_person("release", lambda: release_hold(self._open(), INCARNATION, hold_id, by="legal"))

    async def _delete(self) -> None:
        def work() -> None:
            try:
                delete_stream(self._open(), INCARNATION, grace_ms=2 * DAY_MS, by="alice")
            except HeldError:
                self._count("deletions refused for a hold")
                raise

        self._as_person("delete the stream", work)
        await asyncio.sleep(self._rng.choice([10, 300, 1200]))
        self._undelete()

    def _undelete(self) -> None:
        def work() -> None:
            with suppress(NotDeletedError):
                undelete_stream(self._open(), INCARNATION, by="bob")

        head = self._stores.head
        if head is not None and head.is_deleted:
            self._as_person("undelete the stream", work)

    async def _have_trouble(self) -> None:
        self.trouble.failing = self._rng.choice([0.05, 0.2])
        self.trouble.dying = self._rng.choice([0.0, 0.05, 0.1])
        await asyncio.sleep(self._rng.choice([300, 900]))
        self.trouble.failing = self.trouble.dying = 0.0

    def _open(self) -> LifecycleStores:
        return self._stores.lifecycle(self._table, self._objects)

    def _as_person(self, name: str, work: Callable[[], object]) -> None:
        outcome = "given up"
        try:
            work()
            outcome = "done"
        except Killed:
            outcome = "died"
        except InvalidQueryError:
            outcome = "refused"
        except ColdstreamError as err:
            outcome = f"given up, {type(err).__name__}"
        self._count(f"{name.partition(' ')[0]} {outcome}")
        self._say(f"{name}: {outcome}")

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


def _leave(_: object) -> None:
    """Do not wait for deletions that are under way: the hold is there, and nothing was answered."""
    raise Killed
