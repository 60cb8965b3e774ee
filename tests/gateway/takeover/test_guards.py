"""Each guard of takeover is needed: without it, some history of the explorer comes to grief."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from coldstream.errors import ColdstreamError, GapError
from coldstream.format.chunk import ChunkType
from coldstream.gateway.frames.requests import ConsumerUpdateAnswer
from coldstream.gateway.history.port import ArchivedHeader
from coldstream.gateway.takeover.flow import ChunkFlow
from coldstream.gateway.takeover.ids import ReservedId
from coldstream.gateway.takeover.ledger import CreditLedger
from coldstream.gateway.takeover.plan import ArchiveStart, BrokerStart, Planner
from coldstream.gateway.takeover.proof import LogProof
from coldstream.gateway.takeover.serving import ArchiveServer
from coldstream.gateway.takeover.settling import Settler
from coldstream.gateway.takeover.subscription import FollowedSubscription
from coldstream.manifest.spec import FIRST, OffsetSpec
from coldstream.units import Offset
from tests.support.group_explorer import GroupExplorer
from tests.support.holes_explorer import HolesExplorer
from tests.support.made_chunks import made_chunk
from tests.support.takeover_explorer import TakeoverExplorer
from tests.support.takeover_rig import TakeoverRig

SEEDS = 600

Patch = pytest.MonkeyPatch


def believe_every_jump(patch: Patch) -> None:
    """Take every chunk that leaves offsets out for one after tracking chunks."""

    async def reaches_back(self: Settler, offset: Offset) -> bool:
        return True

    patch.setattr(Settler, "_reaches_back_to", reaches_back)


def count_after_the_question(patch: Patch) -> None:
    """Let an answer prove what arrived after the broker gave it."""
    reaches_back = Settler._reaches_back_to

    async def ask(self: Settler, offset: Offset) -> bool:
        answer = await reaches_back(self, offset)
        if answer:
            for at, kept in enumerate(self._flow.queue):
                self._flow.queue[at] = type(kept)(kept.header, kept.frame, 0)
        return answer

    patch.setattr(Settler, "_reaches_back_to", ask)


def expect_nothing_at_first(patch: Patch) -> None:
    """Let the first chunk be whichever comes."""
    plan = Planner.plan

    async def planned(self: Planner, stream: str, spec: OffsetSpec | None) -> BrokerStart | ArchiveStart:
        start = await plan(self, stream, spec)
        return start if isinstance(start, ArchiveStart) else BrokerStart()

    patch.setattr(Planner, "plan", planned)


def give_credits_the_client_did_not(patch: Patch) -> None:
    """Send what the archive has whether or not the client has credits."""

    async def ready(self: ArchiveServer) -> None:
        await asyncio.sleep(0)

    patch.setattr(ArchiveServer, "ready", ready)


def give_the_broker_all(patch: Patch) -> None:
    """Give the broker more than it may send ahead."""

    def owed(self: CreditLedger, kept: int) -> int:
        return max(0, self.client - self.upstream)

    patch.setattr(CreditLedger, "owed", owed)


def begin_with_all_credits(patch: Patch) -> None:
    """Subscribe in the archive with the client's own credits."""
    subscribe = FollowedSubscription._subscribe

    def subscribed(self: FollowedSubscription, spec: OffsetSpec | None, credit: int) -> None:
        subscribe(self, spec, self.request.credit)

    patch.setattr(FollowedSubscription, "_subscribe", subscribed)


def free_ids_at_once(patch: Patch) -> None:
    """Let the client's next subscription have an id whose last one is ending, or that a question has."""
    patch.setattr(ReservedId, "hold", lambda self, key, frame: False)


def leave_tasks_behind(patch: Patch) -> None:
    """Let the archive go on after the end."""
    patch.setattr(FollowedSubscription, "_stop", lambda self: None)


def wait_for_nothing(patch: Patch) -> None:
    """Go to the broker when the archive has nothing more, without what lies between."""

    async def refill(self: Settler, header: object) -> None:
        self._flow.move(Offset(header.chunk_id))  # type: ignore[attr-defined]

    patch.setattr(Settler, "_refill", refill)


def call_everything_the_same(patch: Patch) -> None:
    """Compare no chunk of the broker with one of the archive."""
    patch.setattr(ArchivedHeader, "is_of", lambda self, header: True)
    patch.setattr(LogProof, "check", lambda self: asyncio.sleep(0))
    patch.setattr(LogProof, "wait", lambda self: asyncio.sleep(0))


def forget_what_was_sent(patch: Patch) -> None:
    """Let a chunk pass that begins within what was sent."""
    patch.setattr(ChunkFlow, "is_first", lambda self, chunk_id: True)


def take_late_answers(patch: Patch) -> None:
    """Serve a consumer whose answer comes after it became inactive."""
    choose = FollowedSubscription.choose

    def chosen(self: FollowedSubscription, update: ConsumerUpdateAnswer) -> bool:
        self._question = update.correlation_id
        return choose(self, update)

    patch.setattr(FollowedSubscription, "choose", chosen)


def skip_as_far_as_the_archive_says(patch: Patch) -> None:
    """Skip a gap of the archive even where the broker has sent what is in it."""
    skip = ArchiveServer.skip

    def skipped(self: ArchiveServer, gap: GapError, end: Offset) -> None:
        skip(self, gap, gap.next_offset)

    patch.setattr(ArchiveServer, "skip", skipped)


def some_of_them_come_to_grief(explorer: type[GroupExplorer | HolesExplorer], seeds: int = SEEDS) -> bool:
    for seed in range(seeds):
        try:
            asyncio.run(explorer(seed).play(150))
        except (AssertionError, ColdstreamError):
            return True
    return False


def comes_to_grief(*, redeclares: bool, seeds: int = SEEDS) -> bool:
    for seed in range(seeds):
        try:
            asyncio.run(TakeoverExplorer(seed, redeclares=redeclares).play(150))
        except (AssertionError, ColdstreamError, KeyError):
            return True
    return False


def test_with_all_guards_nothing_happens() -> None:
    assert not comes_to_grief(redeclares=False, seeds=20)
    assert not comes_to_grief(redeclares=True, seeds=20)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "disable",
    [
        believe_every_jump,
        expect_nothing_at_first,
        give_credits_the_client_did_not,
        give_the_broker_all,
        begin_with_all_credits,
        free_ids_at_once,
        leave_tasks_behind,
        wait_for_nothing,
        forget_what_was_sent,
    ],
    ids=lambda disable: disable.__name__,
)
def test_without_a_guard_a_client_gets_what_it_must_not(
    disable: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    disable(monkeypatch)
    assert comes_to_grief(redeclares=False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
def test_without_the_question_an_inactive_consumer_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not some_of_them_come_to_grief(GroupExplorer, seeds=20)
    take_late_answers(monkeypatch)
    assert some_of_them_come_to_grief(GroupExplorer)


def test_without_the_end_of_a_gap_chunks_are_missing_that_the_broker_has_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not some_of_them_come_to_grief(HolesExplorer, seeds=20)
    skip_as_far_as_the_archive_says(monkeypatch)
    assert some_of_them_come_to_grief(HolesExplorer)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
def test_without_proof_incarnations_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    call_everything_the_same(monkeypatch)
    assert comes_to_grief(redeclares=True)


async def overtaken_behind_an_answer() -> list[int]:
    """Return which chunks come if retention takes one when the broker has just said that it had not."""
    rig = TakeoverRig()
    log = rig.broker.declare("s")
    log.append(made_chunk(0))
    rig.history.put("/", "s", [made_chunk(0)])
    rig.subscribe(1, "s", FIRST, 10)
    await rig.run()
    log.append(made_chunk(10, 1, kind=ChunkType.TRACKING_DELTA))
    log.append(made_chunk(11))
    rig.broker.dispatch()
    rig.move_down()
    await rig.turn()
    assert rig.move_up(), "the broker is not asked"
    for chunk_id in (21, 31):
        log.roll()
        log.append(made_chunk(chunk_id))
    log.retain(1)
    rig.broker.dispatch()
    while rig.move_down():
        pass
    rig.history.archives["/", "s"].chunks[:] = log.history
    await rig.run(seconds=0.1)
    rig.close()
    return [int.from_bytes(chunk[24:32]) for chunk in rig.client.chunks[1]]


def test_an_answer_proves_nothing_of_what_arrives_after_it() -> None:
    assert asyncio.run(overtaken_behind_an_answer()) == [0, 11, 21, 31]


def test_without_the_count_before_the_question_a_chunk_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    count_after_the_question(monkeypatch)
    assert asyncio.run(overtaken_behind_an_answer()) == [0, 11, 31]
