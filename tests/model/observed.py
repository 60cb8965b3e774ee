"""What the model sees of the explorer's states: its variables, from the table, the bucket, the time and what was told.

Offsets become numbers of chunks. What the model has and the stores have not is left out (`urls`, `left`, `asleep`), or
taken to be as large as it may be: `dead` is all that was ever deleted, in any span that an object had at its key. These
and `regretted` are no part of what a step has to come to.
"""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.format.fragment import FragmentTrailer
from coldstream.manifest.entry import DeletionClaim, Loss, Quarantine
from coldstream.manifest.state import ManifestState
from coldstream.store.memory.bucket import etag_of
from coldstream.store.parsed_keys import KeyKind
from tests.explore.base import KEYS, MESSAGES, chunks, segment
from tests.explore.bucket_store import BucketState
from tests.explore.log_store import LogState
from tests.explore.machine import BUCKET, LOG, NOW, TOLD, Machine, State

CHUNKS = len(chunks())
VARIABLES = (
    "entries", "floor", "gen", "life", "gaps", "records", "losses", "tombs", "claims", "holds", "told", "objects",
    "staged", "kept",
)  # fmt: skip
"""Of the model, which each transition of the code fixes; `dead` and `regretted` are of its first state alone."""

Moment = tuple[int, int, int, int]
"""A partition, a bucket, what was told, and the time, each by number."""


def record(**fields: object) -> str:
    """Return a record, in TLA+."""
    return f"[{', '.join(f'{name} |-> {value}' for name, value in fields.items())}]"


def set_of(values: Iterator[str] | list[str]) -> str:
    """Return a set, in TLA+."""
    return f"{{{', '.join(sorted(set(values)))}}}"


def moment_of(machine: Machine, state: State) -> Moment:
    """Return what of a state the model may see."""
    return machine.log.partition_of(state[LOG]), state[BUCKET], state[TOLD], state[NOW]


class Observer:
    """Tells the model's variables at the moments of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._copies = {
            etag_of(data): (first, following, history)
            for first in range(CHUNKS)
            for following in range(first + 1, CHUNKS + 1)
            for history, data in _copies(first * MESSAGES, following * MESSAGES)
        }
        buckets = machine.buckets.values
        self._made: dict[str, set[str]] = {}
        for bucket in buckets:
            for key, one in bucket.objects.items():  # type: ignore[attr-defined]
                if _kind(key) is KeyKind.FRAGMENT:
                    self._made.setdefault(key, set()).add(_fragment(key, one.data))

    def observe(self, moment: Moment) -> dict[str, str]:
        """Return the variables, each as TLA+ has it."""
        partition, bucket, told, now = moment
        log = self._machine.log.partition(partition)
        facts = self._machine.told.values[told].facts  # type: ignore[attr-defined]
        return {
            **self._table(log, now, {fact for what, fact in facts if what == "held"}),
            **self._bucket(self._machine.bucket.state(bucket), log.state),
            "regretted": _bool(self._is_regretted(log)),
        }

    def _table(self, log: LogState, now: int, told: set[str]) -> dict[str, str]:
        state = log.state
        head = state.head
        assert head is not None
        life = "there" if head.deleted_at is None else "deleted" if head.purge_began_at is None else "purging"
        claims = [one for one in head.claims if one.ends_at > now]
        missing = list(state.missing.values())
        return {
            "floor": str(head.floor // MESSAGES),
            "gen": str(head.generation),
            "life": f'"{life}"',
            "gaps": set_of(_span(one.first_offset, one.next_offset) for one in state.gaps.values()),
            "records": set_of(
                _span(one.first_offset, one.next_offset) for one in missing if isinstance(one, Quarantine)
            ),
            "losses": set_of(_span(one.first_offset, one.next_offset) for one in missing if isinstance(one, Loss)),
            "tombs": set_of(
                _span(one.first_offset, one.next_offset, g=_generation(one.key), due=_bool(one.due_at <= now))
                for one in state.tombstones.values()
            ),
            "claims": set_of(
                _span(one.first_offset, one.next_offset, id=f'"{one.revision}"', doomed=set_of(self._doomed(log, one)))
                for one in claims
            ),
            "holds": set_of(
                _span(
                    one.first_offset,
                    CHUNKS * MESSAGES if one.next_offset is None else one.next_offset,
                    id=f'"{one.id}"',
                    waits=set_of(
                        f'"{claim.revision}"'
                        for claim in claims
                        if claim.revision < self._put_at(log, one.id)
                        and one.first_offset < claim.next_offset
                        and (one.next_offset is None or claim.first_offset < one.next_offset)
                    ),
                )
                for one in state.holds.values()
            ),
            "told": set_of(f'"{one}"' for one in told & {hold.id for hold in state.holds.values()}),
        }

    def _doomed(self, log: LogState, claim: DeletionClaim) -> Iterator[str]:
        """Yield what a claim may be about: what was due and not held when it was made."""
        while log.state.head is not None and log.state.head.revision >= claim.revision:
            log = self._machine.log.partition(log.before)
        holds = list(log.state.holds.values())
        for one in log.state.tombstones.values():
            is_held = any(
                hold.first_offset < one.next_offset
                and (hold.next_offset is None or one.first_offset < hold.next_offset)
                for hold in holds
            )
            is_within = claim.first_offset <= one.first_offset and one.next_offset <= claim.next_offset
            if is_within and one.due_at <= claim.at and not is_held:
                yield _span(one.first_offset, one.next_offset, g=_generation(one.key))

    def _put_at(self, log: LogState, hold: str) -> int:
        """Return the revision of the change that put a hold, 0 for one that was there at first."""
        while log.before >= 0:
            before = self._machine.log.partition(log.before)
            if all(one.id != hold for one in before.state.holds.values()):
                assert log.state.head is not None
                return log.state.head.revision
            log = before
        return 0

    def _is_regretted(self, log: LogState) -> bool:
        """Tell whether a deletion was ever undone."""
        while log.before >= 0:
            later, log = log, self._machine.log.partition(log.before)
            head, following = log.state.head, later.state.head
            if head is not None and following is not None and head.is_deleted and not following.is_deleted:
                return True
        return False

    def _bucket(self, bucket: BucketState, state: ManifestState) -> dict[str, str]:
        objects, staged, kept, known = [], [], [], {}
        for key, one in bucket.objects.items():
            data = one.data or b""
            match _kind(key):
                case KeyKind.FRAGMENT:
                    known[key] = _fragment(key, data)
                    objects.append(known[key])
                case KeyKind.STAGED:
                    staged.append(self._copy(data))
                case KeyKind.QUARANTINED:
                    kept.append(self._copy(data))
        entries = [
            known.get(one.key) or _span(one.first_offset, one.next_offset, g=_generation(one.key), h=one.epoch)
            for one in state.entries.values()
        ]
        return {
            "entries": set_of(entries),
            "objects": set_of(objects),
            "staged": set_of(staged),
            "kept": set_of(kept),
            "dead": set_of(one for key in bucket.gone for one in self._made.get(key, ())),
        }

    def _copy(self, data: bytes) -> str:
        first, following, history = self._copies[etag_of(data)]
        return record(f=first, n=following, h=history)


def _copies(first: int, following: int) -> Iterator[tuple[int, bytes]]:
    yield 1, segment(first, following)
    yield 2, segment(first, following, epoch=2)
    yield 0, segment(first, following)[:-1] + b"?"


def _kind(key: str) -> KeyKind | None:
    parsed = KEYS.parse(key)
    return None if parsed is None else parsed.kind


def _generation(key: str) -> int:
    parsed = KEYS.parse(key)
    assert parsed is not None
    return parsed.generation or 0


def _fragment(key: str, data: bytes) -> str:
    trailer = FragmentTrailer.from_bytes(data, source=key, object_bytes=len(data))
    history = 2 if b"carol" in data else 1
    return _span(trailer.first_offset, trailer.next_offset, g=_generation(key), h=history)


def _span(first: int, following: int, **more: object) -> str:
    # Garbage claims what lies past the tail up to the last offset that there may be.
    return record(f=first // MESSAGES, n=min(following // MESSAGES, CHUNKS), **more)


def _bool(value: object) -> str:
    return "TRUE" if value else "FALSE"
