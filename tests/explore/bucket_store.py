"""The bucket as a value: what each request makes of it, and answers. The rules are those of the shipped double.

An object's key may be written again once it is deleted: If-None-Match asks for what is there, not for what was.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from coldstream.errors import ColdstreamError
from coldstream.store.memory.bucket import UNVERSIONED, Version
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.uploads import _Upload
from coldstream.store.object_values import DeleteFailure, DeleteReport, ObjectVersion
from coldstream.units import TimestampMs
from tests.explore.interning import Numbered
from tests.explore.requests import Refusal, Request


@dataclass(frozen=True)
class BucketState:
    """The objects by key, the versions before them, unfinished uploads, and the keys that were deleted ever."""

    objects: dict[str, Version] = field(default_factory=dict)
    earlier: dict[str, tuple[Version, ...]] = field(default_factory=dict)
    uploads: dict[str, _Upload] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    made: int = 0
    """Ids of uploads that it has given."""

    numbers: dict[str, int] = field(default_factory=dict)
    """By key, how many versions it has had, for their ids: in whichever order keys are written, they are the same."""

    def copy_into(self, double: MemoryObjects) -> None:
        """Have the double hold this state."""
        double.objects = {key: version.data or b"" for key, version in self.objects.items()}
        double._latest = dict(self.objects)
        double._earlier = {key: list(versions) for key, versions in self.earlier.items()}
        double._uploads = {
            name: _Upload(one.key, one.initiated_at, one.note, dict(one.parts)) for name, one in self.uploads.items()
        }
        if isinstance(double, NumberedByKey):
            double.numbers = dict(self.numbers)
        double.requests = Counter({"CreateMultipartUpload": self.made})


class NumberedByKey(MemoryObjects):
    """The shipped double, which gives the versions of each key the ids 1, 2 and so on."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.numbers: dict[str, int] = {}
        self._written = ""

    def _write(self, key: str, data: bytes, **options: Any) -> None:
        self._written = key
        super()._write(key, data, **options)

    def _remove(self, key: str) -> None:
        self._written = key
        super()._remove(key)

    def _new_id(self) -> str:
        if not self._versioned:
            return UNVERSIONED
        number = self.numbers[self._written] = self.numbers.get(self._written, 0) + 1
        return str(number)


class BucketStore:
    """Numbers the states of a bucket, and remembers what a request made of which."""

    def __init__(self, states: Numbered, answers: Numbered, *, versioned: bool = False) -> None:
        self._now = TimestampMs(0)
        self._double = NumberedByKey(clock=lambda: self._now, versioned=versioned)
        self._states, self._answers = states, answers
        self._versions = Numbered()
        self._partly: dict[tuple[int, int, int], tuple[tuple[int, int], ...]] = {}
        self._known: dict[tuple[int, int, int], tuple[int, int]] = {}
        self.deleted: dict[tuple[int, int], tuple[str, ...]] = {}
        """The keys whose objects went, from one state to another."""

    def number(self, state: BucketState) -> int:
        """Return the number of a state."""
        version = self._versions.number
        objects = tuple(sorted((key, version(one)) for key, one in state.objects.items()))
        earlier = tuple(sorted((key, tuple(map(version, one))) for key, one in state.earlier.items() if one))
        uploads = tuple(
            (name, one.key, one.note, one.initiated_at, tuple(sorted(one.parts.items())))
            for name, one in sorted(state.uploads.items())
        )
        numbers = tuple(sorted(state.numbers.items()))
        return self._states.number_as((objects, earlier, uploads, state.gone, state.made, numbers), state)

    def state(self, number: int) -> BucketState:
        """Return the state of a number."""
        return self._states.values[number]  # type: ignore[return-value]

    def carry_out(self, state: int, number: int, request: Request, now: TimestampMs) -> tuple[int, int]:
        """Return the state after a request, and its answer, both by number."""
        key = state, number, now
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._carry_out(self.state(state), state, request, now)
        return found

    def carry_out_partly(
        self, state: int, number: int, request: Request, now: TimestampMs
    ) -> tuple[tuple[int, int], ...]:
        """Return what may come of a deletion of several, of which some are refused: S3 has an answer for each.

        None goes, each goes alone, and each alone stays.
        """
        key = state, number, now
        found = self._partly.get(key)
        if found is None:
            wanted = tuple(dict.fromkeys(request.args[0]))  # type: ignore[arg-type]
            ways = dict.fromkeys([(), *((one,) for one in wanted), *(_without(wanted, one) for one in wanted)])
            found = self._partly[key] = tuple(
                self._carry_out(self.state(state), state, replace(request, args=(way,)), now, refused)
                for way in ways
                if (refused := tuple(one for one in wanted if one not in way))
            )
        return found

    def _carry_out(
        self, state: BucketState, number: int, request: Request, now: TimestampMs, refused: tuple[Any, ...] = ()
    ) -> tuple[int, int]:
        self._now = now
        state.copy_into(self._double)
        try:
            answer: Any = self._answer(request)
            if refused:
                failed = (DeleteFailure(one if isinstance(one, str) else one[0], "InternalError") for one in refused)
                answer = DeleteReport(answer.deleted, (*answer.failed, *failed))
        except ColdstreamError as err:
            answer = Refusal.of(err)
        if not request.writes:
            return number, self._answers.number(answer)
        double = self._double
        gone = frozenset(key for key in state.objects if key not in double.objects)
        after = BucketState(
            {key: double._version(key) for key in double.objects},
            {key: tuple(versions) for key, versions in double._earlier.items() if versions},
            dict(double._uploads),
            state.gone | gone,
            state.made + (request.method == "create_upload"),
            dict(double.numbers),
        )
        there = self.number(after)
        if gone:
            self.deleted[number, there] = tuple(sorted(gone))
        return there, self._answers.number(answer)

    def _answer(self, request: Request) -> Any:
        options = dict(request.options)
        match request.method:
            case "listed":
                limit = options.pop("limit")
                return tuple(islice(self._double.listed(*request.args, **options), limit))
            case "versions":
                after, limit = options["after"], options["limit"]
                found = self._double.versions(*request.args)
                return tuple(islice((one for one in found if after is None or _place(one) > _place_of(*after)), limit))
            case "put_new":
                return self._put_new(*request.args, **options)
            case "put_over":  # without If-None-Match
                return self._double._write(*request.args, note=options["note"])
            case "complete_over":
                self._double.objects.pop(request.args[0], None)
                return self._double.complete_upload(*request.args, **options)
        answer = getattr(self._double, request.method)(*request.args, **options)
        return tuple(answer) if request.method == "unfinished_uploads" else answer

    def _put_new(self, key: str, data: bytes, **options: Any) -> None:
        self._double._write_new(key, data, note=options["note"])


def _without(some: tuple[Any, ...], one: Any) -> tuple[Any, ...]:
    return tuple(other for other in some if other != one)


def _place(one: ObjectVersion) -> tuple[str, int]:
    return _place_of(one.key, one.version_id)


def _place_of(key: str, version_id: str) -> tuple[str, int]:
    """Return where a listing of versions has one: by key, the newest first."""
    return key, 0 if version_id == UNVERSIONED else -int(version_id)
