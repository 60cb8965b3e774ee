"""What a child tells its parent, on a clock that jumps: nothing that fails ends it."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.process.channel import MAX_MESSAGE_BYTES, ChildMessage, ChildReport, channel_pair
from coldstream.gateway.process.child_reports import ASK_ARCHIVE_EVERY_S, ChildReports, repeat, say
from tests.gateway.faults.virtual_time import run_virtually
from tests.support.gateway_child import WordServer


def told(channel: socket.socket) -> list[ChildReport]:
    channel.setblocking(False)
    found = []
    while True:
        try:
            message = ChildMessage.from_bytes(channel.recv(MAX_MESSAGE_BYTES))
        except BlockingIOError:
            return found
        assert message.report is not None
        found.append(message.report)


def test_what_fails_is_tried_again_and_logged_once_until_it_works(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = [True, False, False, True, False, True]
    turns = []

    async def turn() -> None:
        turns.append(outcomes[len(turns)])
        if not turns[-1]:
            raise LookupError("now and then")

    async def main() -> None:
        task = asyncio.create_task(repeat(1.0, turn))
        await asyncio.sleep(len(outcomes) - 0.5)
        task.cancel()

    run_virtually(main())
    assert turns == outcomes
    assert [record.message for record in caplog.records] == ["what a process tells of itself failed"] * 2


def test_an_archive_that_cannot_be_asked_is_a_problem_and_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    parent, child = channel_pair()
    served = WordServer(0, GatewayFigures())
    served.is_confused = True

    async def main() -> None:
        with ChildReports(child, served, served.figures):
            await asyncio.sleep(ASK_ARCHIVE_EVERY_S - 1.5)
            served.is_confused = False
            await asyncio.sleep(ASK_ARCHIVE_EVERY_S)

    with parent, child, caplog.at_level(logging.INFO):
        run_virtually(main())
        reports = told(parent)
    assert reports[1].archive_problem == "the question failed: LookupError('the archive')"
    assert reports[-1].archive_problem is None
    assert reports[-1].cold
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        "the subscriptions to the archive cannot be shown",
        "the archive cannot be asked",
    ]


def test_a_problem_of_any_length_fits_into_a_report() -> None:
    parent, child = channel_pair()

    class Talkative(WordServer):
        async def archive_problem(self) -> str | None:
            return "\u0001" * 1_000_000

    async def main() -> None:
        served = Talkative(0, GatewayFigures())
        with ChildReports(child, served, served.figures):
            await asyncio.sleep(2.5)

    with parent, child:
        run_virtually(main())
        assert {len(report.archive_problem or "") for report in told(parent)} == {0, 1_000}


def test_a_parent_that_reads_nothing_or_has_gone_is_no_matter() -> None:
    parent, child = channel_pair()
    with child:
        child.setblocking(False)
        with parent:
            for _ in range(10_000):
                say(child, ChildMessage(is_listening=True))
        say(child, ChildMessage(is_listening=True))
