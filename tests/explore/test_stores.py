"""What the stores may do to an actor: each is shown to be played, by a mistake that nothing else brings to light."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from coldstream.errors import UnavailableError
from coldstream.store.object_values import DeleteReport
from coldstream.store.sortkeys import TOMBSTONES
from coldstream.units import TimestampMs
from tests.explore.actors import read, then, world
from tests.explore.base import INCARNATION, archived
from tests.explore.bucket_store import BucketState, BucketStore
from tests.explore.interning import Numbered
from tests.explore.machine import Machine, Violation
from tests.explore.nearest import search_nearest
from tests.explore.patches import reproducible
from tests.explore.requests import Part, Refusal, Request
from tests.explore.site import Ask
from tests.explore.table_pages import PAGES, TablePages
from tests.explore.watching import Invariants
from tests.explore.world import Faults

MOST_STATES = 3000
"""The mistakes below show within a few hundred."""


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with reproducible() as patch:
        yield patch


class Wrong:
    """Stands between an actor and its stores; each subclass makes one mistake."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask

    def __call__(self, request: Request) -> Any:
        return self.ask(request)

    def finish(self) -> None:
        """Nothing is held back."""


class DeafToRefusedKeys(Wrong):
    """Takes an answer to DeleteObjects for a deletion of all of them."""

    def __call__(self, request: Request) -> Any:
        answer = self.ask(request)
        if isinstance(answer, DeleteReport) and answer.failed:
            return DeleteReport((*answer.deleted, *(one.key for one in answer.failed)))
        return answer


class FirstPageOfListings(Wrong):
    """Does not go on with a listing that ended early."""

    def __call__(self, request: Request) -> Any:
        answer = self.ask(request)
        return answer[:-1] if request.method == "listed" and len(answer) == Faults(by_pages=True).page else answer


class BelievesItsHost(Wrong):
    """Asks its host for the time, an hour ahead as that is said to be."""

    def __call__(self, request: Request) -> Any:
        if request.part is Part.CLOCK:
            return self.ask(Request(Part.HOST_CLOCK, "now")) - 3_600_000
        return self.ask(request)


class DeafToRefusals(Wrong):
    """Takes a transaction that was refused for one that was written."""

    def __call__(self, request: Request) -> Any:
        try:
            return self.ask(request)
        except UnavailableError:
            if request.method == "apply":
                return None
            raise


def _only_markers(objects: Any, bucket: Any, keys: Any, *, signed_at: Any) -> Any:
    return objects.delete_many(keys, signed_at=signed_at)


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake, the world in which it shows, as what, and the world without what is to be shown."""

    names: str
    faults: str
    told: str
    without: str
    alter: Callable[[Ask], Any] | None = None
    target: str = ""
    instead: Callable[..., Any] | None = None
    looks_up_too: bool = False
    """Whether each actor makes lookups once it is done."""

    def search(self, faults: str, patch: pytest.MonkeyPatch) -> None:
        """Search a world with the mistake. Raises Violation."""
        if self.target:
            patch.setattr(f"coldstream.{self.target}", self.instead)
        there = world(self.names.split("+"), faults=faults)
        roles = [replace(one, alter=self.alter) for one in there.roles]
        if self.looks_up_too:
            roles = [replace(one, work=then(one.work, read)) for one in roles]
        machine = Machine(replace(there, roles=roles))
        Invariants(machine)
        try:
            search_nearest(machine, max_states=MOST_STATES)
        finally:
            machine.programs.close()


MISTAKES = {
    "some of several objects stay": Mistake(
        "cut+sweep", "0c0l0r1d", "no tombstone is left", "0c0l0r", DeafToRefusedKeys
    ),
    "listings come by pages": Mistake("rebuild+upload", "0c0l0rp", "invariant 7", "0c0l0r", FirstPageOfListings),
    "versions stay": Mistake(
        "erase+sweep",
        "0c0l0rv",
        "still in the bucket",
        "0c0l0r",
        target="lifecycle.sweep.delete_for_good",
        instead=_only_markers,
    ),
    "the index lags": Mistake(
        *("upload", "0c0l0ri", "invariant 5", "0c0l0rh"),
        target="resolve.attach._is_late_before",
        instead=lambda *_: False,
        looks_up_too=True,
    ),
    "a clock steps": Mistake("cut+sweep", "0c0l0r1s", "is deleted", "0c0l0r", BelievesItsHost),
    "a request is refused": Mistake("lose", "0c0l1r", "nothing says", "0c0l0r", DeafToRefusals),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_it_is_played(what: str, patch: pytest.MonkeyPatch) -> None:
    mistake = MISTAKES[what]
    with pytest.raises(Violation, match=mistake.told):
        mistake.search(mistake.faults, patch)


@pytest.mark.parametrize("what", MISTAKES)
def test_without_it_the_mistake_does_not_show(what: str, patch: pytest.MonkeyPatch) -> None:
    mistake = MISTAKES[what]
    mistake.search(mistake.without, patch)


def test_a_key_is_free_again_once_its_object_is_deleted() -> None:
    """If-None-Match asks for what is there: a creator that stalled is not refused for what was."""
    states, answers = Numbered(), Numbered()
    for versioned in (False, True):
        store = BucketStore(states, answers, versioned=versioned)
        state, requests = store.number(BucketState()), Numbered()
        told = []
        options = (("crc32", 0), ("note", None), ("size_bytes", 1))
        new, gone = Request(Part.BUCKET, "put_new", ("k", b"x"), options), Request(Part.BUCKET, "delete", ("k",))
        for request in (new, new, gone, new):
            state, answer = store.carry_out(state, requests.number(request), request, TimestampMs(0))
            told.append(isinstance(answers.values[answer], Refusal))
        assert told == [False, True, False, False]
        assert store.state(state).gone == {"k"}


def test_a_query_goes_on_where_its_page_ended_with_what_was_written_since() -> None:
    """The journal is read one event at a time, and is gone after the first page."""
    table = archived().table
    pages: list[int] = []

    def ask(request: Request) -> Any:
        page = PAGES[request.method](table, *request.args)
        pages.append(len(page))
        if len(pages) == 1:
            table._partitions[INCARNATION] = replace(table._partitions[INCARNATION], events={})
        return page

    rows = list(TablePages(ask, 1).rows(INCARNATION, "event"))
    assert (len(rows), pages) == (1, [1, 0])
    whole = archived().table
    read_by_pages = TablePages(lambda request: PAGES[request.method](whole, *request.args), 2)
    assert list(read_by_pages.rows(INCARNATION)) == list(whole.rows(INCARNATION))
    assert list(read_by_pages.rows(INCARNATION, TOMBSTONES)) == list(whole.rows(INCARNATION, TOMBSTONES))
