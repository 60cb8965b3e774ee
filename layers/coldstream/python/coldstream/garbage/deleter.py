"""`Deleter`: deletes garbage by the thousand, and counts what the store's answers confirm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from coldstream.errors import ReplacedError
from coldstream.garbage.holding import span_of
from coldstream.garbage.kinds import ObjectKind, ObjectState
from coldstream.garbage.looked_at import LookedAt
from coldstream.garbage.tally import Tally
from coldstream.manifest.entry import DeletionClaim
from coldstream.manifest.stream import Incarnation
from coldstream.store.holding import claim_deletion, end_claim
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import TimestampMs

MOST_AT_ONCE = 1000
"""Keys of one DeleteObjects."""


class Deleter:
    """Takes proven garbage, and deletes a thousand at a time: call `flush` at the end.

    What was proven before a hold was put is looked at again: the deletion is claimed for each stream first, and what
    is held by then stays.

    Cost: one DeleteObjects a thousand; for a staged segment one DELETE, because another copy may have come to its key,
    and only a DELETE has a condition; for each stream two transactions a thousand.
    """

    def __init__(
        self, table: ManifestTable, objects: ObjectStore, tally: Tally, now: Callable[[], TimestampMs]
    ) -> None:
        self._table = table
        self._objects = objects
        self._tally = tally
        self._now = now
        self._taken: list[LookedAt] = []

    def take(self, one: LookedAt) -> None:
        """Delete an object, now or with the next thousand. Raises UnavailableError."""
        self._taken.append(one)
        if len(self._taken) == MOST_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Delete what was taken. Raises UnavailableError if the request failed: some may be deleted, none counts."""
        taken, self._taken = self._taken, []
        claims: list[tuple[Incarnation, DeletionClaim]] = []
        free: list[LookedAt] = []
        for incarnation, group in groupby(taken, key=lambda one: one.incarnation):
            of_stream = tuple(group)
            # A stream without a head has no holds, and `UnknownStreams` has looked for it where they are written, too.
            if incarnation is None or self._table.head(incarnation) is None:
                free += of_stream
            elif claimed := claim_deletion(self._table, incarnation, of_stream, span_of, self._now):
                claims.append((incarnation, claimed.claim))
                free += claimed.objects
        # By the oldest, no request is carried out after any of them is over.
        signed_at = min((claim.at for _, claim in claims), default=None)
        is_all_done = self._delete([one for one in free if one.kind is not ObjectKind.STAGED], signed_at)
        for one in free:
            if one.kind is ObjectKind.STAGED:
                self._delete_staged(one, signed_at)
        if is_all_done:
            for incarnation, claim in claims:
                end_claim(self._table, incarnation, claim, self._now)

    def _delete(self, objects: Sequence[LookedAt], signed_at: TimestampMs | None) -> bool:
        if not objects:
            return True
        sizes = {one.key: one.listed.size_bytes for one in objects}
        answer = self._objects.delete_many(tuple(sizes), signed_at=signed_at)
        self._count(len(answer.deleted), sum(sizes[key] for key in answer.deleted))
        self._tally.deletions = self._tally.deletions.with_failures(
            tuple((one.key, one.reason) for one in answer.failed)
        )
        return not answer.failed

    def _delete_staged(self, one: LookedAt, signed_at: TimestampMs | None) -> None:
        try:
            self._objects.delete(one.key, if_match=one.listed.etag, signed_at=signed_at)
        except ReplacedError:
            # Another copy was staged since the listing. It has an event of its own; the one that was garbage is gone.
            self._tally.count(one, ObjectState.WAITING)
            return
        self._count(1, one.listed.size_bytes)

    def _count(self, objects: int, size_bytes: int) -> None:
        done = self._tally.deletions
        self._tally.deletions = replace(done, objects=done.objects + objects, size_bytes=done.size_bytes + size_bytes)
