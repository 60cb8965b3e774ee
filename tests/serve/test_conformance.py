"""The protocol's own conformance suite, whole against direct streams, and its reads against archived broker streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from coldstream.serve.options import ServeOptions
from tests.support.broker_front import BrokerFront
from tests.support.durable_streams import home, run_suite
from tests.support.serving import hosting, memory_archive, served

pytestmark = [pytest.mark.server, pytest.mark.timeout(1200)]

OPTIONS = ServeOptions(long_poll_s=1, cors_origins=("*",), requests_per_s=0)
TESTS = 332
SUBSCRIPTIONS = 6
"""Tests of an API beside the protocol, which the suite leaves out unless it is asked to run them."""

READS = 118
NO_READS = {
    "^Fork": "only direct streams are forked",
    "^Stream Closure": "a broker's stream is never closed for good",
    "^Idempotent Producer": "brokers know producers by their own protocol",
    "TTL|Expires-At": "the archive's retention says how long a broker's stream is kept",
    "^Reserved subscription": "an API beside the protocol",
    "[Ss]eq |seq$|seq values|sequence ordering|sequence numbers|Stream-Seq": "Stream-Seq is of appends",
    "create|PUT|Location|use default": "how a stream is created",
    "POST(?! body$)|on append|missing Content-Type|with matching|type mismatch": "what an append answers",
    "invalid JSON|empty JSON arrays|different casing": "what an append refuses or takes",
    "[Dd]elete|DELETE": "how a stream is deleted",
}
"""What the read half leaves out: parts of the tests' names, and why."""


@asynccontextmanager
async def direct_streams() -> AsyncIterator[ASGIApp]:
    async with hosting(memory_archive(), OPTIONS) as (_, app):
        yield app


@asynccontextmanager
async def archived_streams(directory: Path) -> AsyncIterator[ASGIApp]:
    archive = memory_archive()
    async with hosting(archive, replace(OPTIONS, refresh_s=1e-9)) as (host, app):
        front = BrokerFront(app, host, archive, directory)
        yield front
        front.close()


def test_direct_streams_pass_the_whole_suite(tmp_path: Path) -> None:
    home()
    with served(direct_streams) as url:
        result = run_suite(url, tmp_path)
    assert not result.failed, result.output
    assert (len(result.passed), len(result.skipped)) == (TESTS, SUBSCRIPTIONS)
    assert all("subscription" in name.lower() for name in result.skipped)


def test_archived_streams_of_a_broker_pass_all_that_is_about_reads(tmp_path: Path) -> None:
    home()
    segments = tmp_path / "segments"
    segments.mkdir()
    with served(lambda: archived_streams(segments)) as url:
        result = run_suite(url, tmp_path, f"^(?!.*({'|'.join(NO_READS)}))")
    assert not result.failed, result.output
    assert (len(result.passed), len(result.skipped)) == (READS, TESTS + SUBSCRIPTIONS - READS)
