"""Requests while the archive is asked, hangs, fails or has a gap; ids, credits and versions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from coldstream.errors import AccessDeniedError, UnavailableError
from coldstream.gateway.frames.keys import Code
from coldstream.gateway.frames.requests import Credit, Subscribe, Unsubscribe
from coldstream.gateway.gap_rules import GapAction, GapRules
from coldstream.gateway.history.memory import MemoryHistory
from coldstream.gateway.history.port import ArchivedHeader
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.manifest.spec import FIRST, NEXT, AtOffset, OffsetSpec
from coldstream.units import Offset
from tests.support.made_chunks import made_chunk, made_chunks
from tests.support.takeover_rig import QUICK, TakeoverRig, user_chunks

CHUNKS = made_chunks(20)


def run(scenario: Callable[[TakeoverRig], Awaitable[None]], options: TakeoverOptions = QUICK, version: int = 1) -> None:
    async def play() -> None:
        rig = TakeoverRig(options=options, version=version)
        await scenario(rig)
        rig.close()
        await rig.turn()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(play())


def test_an_archive_that_hangs_delays_neither_unsubscribe_nor_another_subscription() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS, "hangs")
        rig.across(CHUNKS, "other")
        rig.history.archives["/", "hangs"].answers.clear()
        rig.subscribe(1, "hangs", FIRST)
        await rig.run()
        assert not rig.client.codes
        second = rig.subscribe(2, "other", FIRST, 50)
        await rig.run()
        assert rig.client.codes == {second: Code.OK}
        assert rig.client.chunks[2] == user_chunks(CHUNKS)
        ended = rig.unsubscribe(1)
        await rig.run()
        assert rig.client.codes[ended] == Code.OK
        assert 1 not in rig.broker.readers

    run(scenario)


def test_a_reading_that_hangs_ends_with_its_subscription() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        archive = rig.history.archives["/", "s"]
        archive.flows.clear()
        rig.subscribe(1, "s", FIRST)
        await rig.run()
        assert len(rig.history.open_readings) == 1
        ended = rig.unsubscribe(1)
        await rig.run()
        assert rig.client.codes[ended] == Code.OK
        assert not rig.history.open_readings
        again = rig.subscribe(1, "s", FIRST, 50)
        archive.flows.set()
        await rig.run()
        assert rig.client.codes[again] == Code.OK
        assert rig.client.chunks[1] == user_chunks(CHUNKS)

    run(scenario)


def test_credits_that_come_before_the_answer_count() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        rig.subscribe(1, "s", FIRST, 1)
        rig.credit(1, 2)
        await rig.run()
        assert len(rig.client.chunks[1]) == 3
        rig.credit(1, 30)
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(CHUNKS)

    run(scenario)


def test_a_client_that_gives_no_credits_stops_the_archive() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        rig.subscribe(1, "s", FIRST, 0)
        await rig.run()
        assert rig.client.chunks[1] == []
        assert all(reading._at == 0 for reading in rig.history.open_readings)
        rig.client.is_full = True
        rig.credit(1, 5)
        await rig.run()
        assert rig.client.chunks[1] == []
        rig.client.is_full = False
        rig.client.has_drained.set()
        await rig.run()
        assert len(rig.client.chunks[1]) == 5

    run(scenario)


@pytest.mark.parametrize("code", [Code.STREAM_DOES_NOT_EXIST, Code.ACCESS_REFUSED, Code.STREAM_NOT_AVAILABLE])
def test_what_the_broker_refuses_is_refused_by_its_code(code: Code) -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        rig.broker.refused["s"] = code
        number = rig.subscribe(1, "s", FIRST)
        await rig.run()
        assert rig.client.codes == {number: code}
        assert not rig.takeover._receivers

    run(scenario)


@pytest.mark.parametrize(
    "error", [UnavailableError("the table is away"), AccessDeniedError("no")], ids=["away", "denied"]
)
def test_a_history_that_cannot_be_asked_is_an_error_and_never_left_out(error: UnavailableError) -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        rig.history.archives["/", "s"].question_error = error
        number = rig.subscribe(1, "s", FIRST)
        await rig.run()
        assert rig.client.codes == {number: Code.STREAM_NOT_AVAILABLE}
        rig.history.archives["/", "s"].question_error = None
        again = rig.subscribe(1, "s", FIRST, 50)
        await rig.run()
        assert rig.client.codes[again] == Code.OK
        assert rig.client.chunks[1] == user_chunks(CHUNKS)

    run(scenario)


def test_a_last_chunk_that_cannot_be_read_is_an_error_since_nothing_would_be_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)

        async def gone(vhost: str, stream: str, offset: Offset) -> ArchivedHeader | None:
            return None if offset >= 150 else await MemoryHistory.header_at(rig.history, vhost, stream, offset)

        monkeypatch.setattr(rig.history, "header_at", gone)
        number = rig.subscribe(1, "s", FIRST)
        await rig.run()
        assert rig.client.codes == {number: Code.STREAM_NOT_AVAILABLE}
        assert not rig.client.chunks[1]

    run(scenario)


def test_questions_that_are_not_answered_in_time_end_with_an_error() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        rig.history.archives["/", "s"].answers.clear()
        number = rig.subscribe(1, "s", FIRST)
        await rig.run(seconds=0.4)
        assert rig.client.codes == {number: Code.STREAM_NOT_AVAILABLE}

    run(scenario)


def test_a_second_subscription_of_an_id_is_refused_by_the_broker() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        first = rig.subscribe(1, "s", FIRST, 50)
        number = rig.next_number()
        rig.ask(Subscribe(number, 1, "s", FIRST, 10, {}))
        await rig.run()
        assert rig.client.codes == {first: Code.OK, number: Code.SUBSCRIPTION_EXISTS}
        assert rig.client.chunks[1] == user_chunks(CHUNKS)

    run(scenario)


def test_ids_of_the_gateways_questions_are_out_of_the_clients_reach() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        rig.subscribe(1, "s", FIRST, 50)
        while 255 not in rig.takeover._receivers:
            rig.move_up() or rig.move_down()
            await rig.turn()
        rig.ask(Credit(255, 7))
        assert [one.code for one in rig.client.refused_credits] == [Code.SUBSCRIPTION_DOES_NOT_EXIST]
        ended = rig.next_number()
        rig.ask(Unsubscribe(ended, 255))
        assert rig.client.codes[ended] == Code.SUBSCRIPTION_DOES_NOT_EXIST
        mine = rig.subscribe(255, "s", NEXT, 5)
        rig.credit(255, 1)
        assert mine not in rig.client.codes
        await rig.run()
        assert rig.client.codes[mine] == Code.OK
        assert rig.broker.readers[255].credit == 6
        assert rig.client.chunks[1] == user_chunks(CHUNKS)
        assert rig.client.chunks[255] == []

    run(scenario)


@pytest.mark.parametrize("has_stats", [True, False], ids=["3.11", "3.10"])
def test_a_client_that_uses_every_id_is_served_all_the_same(*, has_stats: bool) -> None:
    async def scenario() -> None:
        rig = TakeoverRig(has_stats=has_stats)
        log = rig.across(CHUNKS)
        for number in range(256):
            if number != 77:
                rig.subscribe(number, "s", NEXT)
        await rig.run()
        rig.subscribe(77, "s", FIRST, 50)
        await rig.run()
        assert rig.client.chunks[77] == user_chunks(log.history)
        assert set(rig.client.codes.values()) == {Code.OK}
        again = rig.unsubscribe(77)
        await rig.run()
        assert rig.client.codes[again] == Code.OK
        rig.subscribe(77, "s", FIRST, 50)
        rig.move_up()
        gone = rig.unsubscribe(77)
        await rig.run()
        assert rig.client.codes[gone] == Code.OK
        assert 77 not in rig.broker.readers
        rig.close()

    asyncio.run(scenario())


def test_however_many_credits_a_client_gives_the_broker_gets_a_few_hundred() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        chunks = made_chunks(1500, records=1)
        log = rig.across([], archived=0)
        rig.subscribe(1, "s", NEXT, 1000)
        for _ in range(50):
            rig.credit(1, 0xFFFF)
        await rig.run()
        assert rig.broker.readers[1].credit == 256
        for chunk in chunks:
            log.append(chunk)
        rig.broker.dispatch()
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(chunks)
        assert 128 < rig.broker.readers[1].credit <= 256

    run(scenario)


def test_whoever_asks_for_every_chunk_gets_the_brokers_own_log() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        log = rig.across(CHUNKS)
        rig.subscribe(1, "s", FIRST, 50, {"chunk_selector": "all"})
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(log.history[12:])
        assert not rig.history.asked
        ended = rig.unsubscribe(1)
        await rig.run()
        assert rig.client.codes[ended] == Code.OK
        assert not rig.takeover._receivers

    run(scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_the_archive_delivers_in_the_connections_version(version: int) -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        rig.subscribe(1, "s", FIRST, 50)
        await rig.run()
        assert rig.client.versions == {version}
        assert rig.client.chunks[1] == user_chunks(CHUNKS)

    run(scenario, version=version)


def test_another_incarnations_archive_is_left_out() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        rig.history.put("/", "s", [made_chunk(10 * number, timestamp=77) for number in range(16)])
        rig.subscribe(1, "s", FIRST, 50)
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(CHUNKS[12:])

    run(scenario)


def test_a_deleted_stream_ends_what_the_archive_serves() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        rig.subscribe(1, "s", FIRST, 3)
        await rig.run()
        rig.broker.delete("s")
        await rig.run()
        assert rig.client.gone == ["s"]
        rig.credit(1, 10)
        await rig.run()
        assert len(rig.client.chunks[1]) == 3
        assert not rig.history.open_readings

    run(scenario)


@pytest.mark.parametrize("action", GapAction)
def test_a_gap_in_the_archive_ends_the_subscription_or_is_skipped(action: GapAction) -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        tail = rig.subscribe(2, "s", NEXT)
        del rig.history.archives["/", "s"].chunks[4:6]
        rig.subscribe(1, "s", FIRST, 50)
        await rig.run()
        assert rig.figures.gaps_total == {action.value: 1}
        if action is GapAction.SKIP:
            assert rig.client.chunks[1] == user_chunks(CHUNKS[:4] + CHUNKS[6:])
            assert not rig.client.gone
            return
        assert rig.client.chunks[1] == user_chunks(CHUNKS[:4])
        assert rig.client.gone == ["s"]
        assert rig.client.codes[tail] == Code.OK
        # To the client all its subscriptions to the stream have ended, so at the broker they have, too.
        assert not rig.broker.readers
        assert not rig.takeover._receivers

    gaps = GapRules((("other", GapAction.ERROR), ("s*", action)))
    # What is missing without a reason is not waited for here: test_holes.py has that.
    options = TakeoverOptions(gaps=gaps, archive_wait_s=0, archive_poll_s=0.01, question_s=0.2)
    run(scenario, options)


def test_what_comes_late_into_the_archive_is_waited_for() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS, archived=8)
        rig.subscribe(1, "s", FIRST, 50)
        await rig.run(seconds=0.02)
        assert rig.client.chunks[1] == user_chunks(CHUNKS[:8])
        archive = rig.history.archives["/", "s"]
        for number in range(8, 16):
            archive.chunks.append(CHUNKS[number])
            await rig.run(seconds=0.02)
        await rig.run(seconds=0.05)
        assert rig.client.chunks[1] == user_chunks(CHUNKS)

    run(scenario, TakeoverOptions(archive_wait_s=20, archive_poll_s=0.01, question_s=0.2))


def test_what_never_comes_is_a_gap() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS, archived=8)
        rig.subscribe(1, "s", FIRST, 50)
        await rig.run(seconds=0.3)
        assert rig.client.chunks[1] == user_chunks(CHUNKS[:8])
        assert rig.client.gone == ["s"]

    run(scenario)


def test_an_archive_that_is_away_is_waited_for() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        archive = rig.history.archives["/", "s"]
        archive.error, archive.error_at = UnavailableError("slow down"), Offset(55)
        rig.subscribe(1, "s", FIRST, 50)
        await rig.run(seconds=0.05)
        assert rig.client.chunks[1] == user_chunks(CHUNKS[:5])
        archive.error = None
        await rig.run(seconds=0.5)
        assert rig.client.chunks[1] == user_chunks(CHUNKS)

    run(scenario)


def test_one_that_stays_away_for_good_ends_the_subscription() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        archive = rig.history.archives["/", "s"]
        archive.error, archive.error_at = AccessDeniedError("no"), Offset(55)
        rig.subscribe(1, "s", FIRST, 50)
        await rig.run(seconds=0.05)
        assert rig.client.chunks[1] == user_chunks(CHUNKS[:5])
        assert rig.client.gone == ["s"]

    run(scenario)


def test_frames_that_are_none_are_the_brokers_to_answer() -> None:
    rig = TakeoverRig()
    for key in (7, 9, 12, 10, 11, 28, 31, 0x801A):
        assert not rig.takeover.from_client(key, b"\0\0\0\x05" + key.to_bytes(2) + b"\0\1\0")


def test_a_subscription_goes_on_at_the_broker_if_all_that_it_asks_for_is_there() -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS)
        frames = len(rig.broker.requests)
        rig.subscribe(1, "s", AtOffset(Offset(130)), 50, {"name": "mine"})
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(CHUNKS[13:])
        asked = [one for one in rig.broker.requests[frames:] if isinstance(one, Subscribe) and one.subscription_id == 1]
        assert [(one.spec, one.credit, one.properties) for one in asked] == [
            (AtOffset(Offset(130)), 50, {"name": "mine"})
        ]

    run(scenario)


@pytest.mark.parametrize("spec", [FIRST, AtOffset(Offset(130))], ids=str)
def test_who_needs_no_archive_does_not_notice_that_it_is_away(spec: OffsetSpec) -> None:
    async def scenario(rig: TakeoverRig) -> None:
        rig.across(CHUNKS, left=100 if spec == FIRST else 4)
        rig.history.archives["/", "s"].answers.clear()
        rig.subscribe(1, "s", spec, 50)
        await rig.run()
        assert rig.client.chunks[1] == user_chunks(CHUNKS, 0 if spec == FIRST else 130)
        assert not rig.history.asked

    run(scenario)
