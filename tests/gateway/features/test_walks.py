"""What stock clients offer, used through the gateway: what they find is what they find with the broker alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coldstream.gateway.alone.options import AloneOptions
from coldstream.streams import DirectArchive
from tests.gateway.clients.border import Border, border
from tests.gateway.clients.gateway_run import GatewayRun
from tests.gateway.features.walks import (
    MESSAGES,
    Walker,
    expected,
    find_java_walker,
    find_javascript_walker,
)
from tests.support.alone import running_alone
from tests.support.broker import Broker, find_rabbitmq
from tests.support.certificates import self_signed_pem
from tests.support.fixtures import do_without
from tests.support.releases import RABBITMQ_4_0

KEPT_BYTES = 200_000

pytestmark = pytest.mark.server


@dataclass
class WalkedBorder:
    """The streams of a program, which lie on both sides of the border, and what it found before."""

    walker: Walker
    border: Border
    gateway: GatewayRun
    middle_ms: int
    direct: dict[str, str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Border]:
    if find_rabbitmq(RABBITMQ_4_0) is None:
        do_without(f"RabbitMQ {RABBITMQ_4_0.version}", RABBITMQ_4_0.remedy)
    with Broker(release=RABBITMQ_4_0) as broker, border(broker, tmp_path_factory.mktemp("walks"), "walk-*") as found:
        yield found


@pytest.fixture(scope="module", params=["java", "javascript"])
def walker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Walker:
    is_java = request.param == "java"
    found = find_java_walker(tmp_path_factory.mktemp("classes")) if is_java else find_javascript_walker()
    if found is None:
        do_without(f"the stock client for {request.param}", "make stream-client gateway-clients")
    return found


@pytest.fixture(scope="module")
def walked(walker: Walker, made: Border, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WalkedBorder]:
    """Have streams filled through the gateway, walked with the broker alone, and then mostly deleted there."""
    log = tmp_path_factory.mktemp("gateway") / "gateway.log"
    with GatewayRun(made.stack.environment, made.broker.stream_port, log) as gateway:
        middle_ms = walker.fill(gateway.port)
        direct = walker.walk(made.broker.stream_port, middle_ms, "direct")
        made.make(dict.fromkeys(walker.streams, 1), kept_bytes=KEPT_BYTES)
        yield WalkedBorder(walker, made, gateway, middle_ms, direct)


def test_over_the_border_is_found_what_was_found_before(walked: WalkedBorder):
    found = walked.walker.walk(walked.gateway.port, walked.middle_ms, "border", "direct")
    assert found.pop("stored") == "99"
    assert found == walked.direct
    assert expected().items() <= found.items()


def test_clients_behind_a_balancer_that_check_its_certificate_find_the_same(walked: WalkedBorder, tmp_path: Path):
    pem = self_signed_pem(tmp_path / "gateway.pem")
    tls = ("--certificate", str(pem), "--private-key", str(pem))
    broker_port, log = walked.border.broker.stream_port, tmp_path / "gateway.log"
    with GatewayRun(walked.border.stack.environment, broker_port, log, *tls) as gateway:
        found = walked.walker.walk(gateway.port, walked.middle_ms, "tls", "direct", pem)
    assert found.pop("stored") == "99"
    assert found == walked.direct


async def test_without_a_broker_clients_find_what_they_published(walker: Walker):
    name = f"walk-{walker.language}-super"
    options = AloneOptions(creates_streams=True, poll_s=0.2, turns_every_s=0.1, lease_s=1.0, super_streams=(name,))
    async with running_alone(DirectArchive.in_memory(), options=options) as alone:
        for number in range(3):
            await alone.parts.host.create("/", f"{name}-{number}")
        middle_ms = await asyncio.to_thread(walker.fill, alone.port, super_stream_is_there=True)
        found = await asyncio.to_thread(walker.walk, alone.port, middle_ms, "alone", "alone")
    assert expected().items() <= found.items()
    assert found["super"].startswith(f"{MESSAGES} ")
    assert found["stored"] == "99"
