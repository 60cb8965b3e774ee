from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coldstream.gateway.frames.answers import PeerPropertiesAnswer
from coldstream.gateway.process.addresses import HostPort
from coldstream.gateway.process.broker_probe import BrokerProbe
from coldstream.gateway.process.options import BrokerSide
from tests.support.broker import Broker
from tests.support.certificates import self_signed_pem


@contextmanager
def answering(body: bytes, *, hangs_up: bool = True) -> Iterator[HostPort]:
    """Have a server that says the same to everybody who has asked something."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        is_over = threading.Event()

        def serve() -> None:
            while not is_over.is_set():
                connection, _ = server.accept()
                with connection:
                    connection.recv(1024)
                    connection.sendall(body)
                    if not hangs_up:
                        is_over.wait(30)

        thread = threading.Thread(target=serve, name="answering")
        thread.start()
        try:
            yield HostPort(*server.getsockname())
        finally:
            is_over.set()
            socket.create_connection(server.getsockname(), 5).close()
            thread.join()


def answer_of(code: int) -> bytes:
    return PeerPropertiesAnswer(1, code, {"product": "RabbitMQ"}).to_bytes()


def asked(*addresses: HostPort, within_s: float = 5.0) -> str | None:
    return BrokerProbe(BrokerSide(addresses), within_s=within_s).ask()


@pytest.fixture
def nobody() -> HostPort:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return HostPort(*server.getsockname())


def test_one_of_several_brokers_that_answers_is_enough(nobody: HostPort) -> None:
    with answering(answer_of(1)) as there:
        assert asked(nobody, there) is None


def test_why_none_answers_is_said_of_each(nobody: HostPort) -> None:
    with answering(b"") as silent:
        problem = asked(nobody, silent)
    assert problem is not None
    assert f"{nobody}: [Errno 111] Connection refused" in problem
    assert f"{silent}: " in problem


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "answered with a frame of 1213486160 bytes"),
        (answer_of(15), "answered with code 15"),
        (b"\x00\x00\x00\x04\x00\x17\x00\x01", "answered with a frame of key 0x17"),
        (b"\x00\x00\x00\x00", "a frame of 0 bytes has no key"),
        (b"\x00\x00", "closed the connection"),
    ],
)
def test_what_is_not_the_stream_protocol_is_no_answer(body: bytes, problem: str) -> None:
    with answering(body) as there:
        assert problem in (asked(there) or "")


def test_a_broker_that_hangs_is_given_up() -> None:
    began = time.monotonic()
    with answering(b"\x00", hangs_up=False) as there:
        assert "timed out" in (asked(there, within_s=0.2) or "")
    assert time.monotonic() - began < 20


def test_a_certificate_that_nobody_vouches_for_is_no_answer(tmp_path: Path) -> None:
    with answering(answer_of(1)) as there:
        problem = BrokerProbe(BrokerSide((there,), is_tls=True), within_s=1).ask()
    assert problem is not None
    assert "ssl" in problem.lower() or "wrong version" in problem.lower()


@pytest.mark.parametrize("host", ["x" * 64, "a..b", "брокер" * 20])
def test_a_host_that_cannot_be_is_no_answer(host: str) -> None:
    assert f"{host}:5552: " in (asked(HostPort(host, 5552)) or "")


def test_authorities_that_go_while_it_runs_are_no_answer_and_it_asks_again_once_they_are_back(tmp_path: Path) -> None:
    ca = self_signed_pem(tmp_path / "ca.pem")
    with answering(answer_of(1)) as there:
        probe = BrokerProbe(BrokerSide((there,), is_tls=True, ca=ca), within_s=1)
        assert "ca.pem" not in (probe.ask() or "")
        there_before = ca.read_bytes()
        ca.unlink()
        assert f"{there}: --broker-ca: {ca}: " in (probe.ask() or "")
        ca.write_bytes(there_before)
        assert "ca.pem" not in (probe.ask() or "")


def test_a_defect_does_not_end_the_asking(nobody: HostPort, caplog: pytest.LogCaptureFixture) -> None:
    probe = BrokerProbe(BrokerSide((nobody,)), every_s=0.01)
    answers: list[str | None] = []

    def ask() -> str | None:
        if not answers:
            answers.append(None)
            raise LookupError("a defect")
        assert probe.problem is not None
        answers.append(probe.problem)
        return None

    probe.ask = ask  # type: ignore[method-assign]
    probe.start()
    try:
        deadline = time.monotonic() + 30
        while len(answers) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        probe.stop()
    assert answers[1] == "the question failed: LookupError('a defect')"
    assert "the broker cannot be asked" in caplog.messages


@pytest.mark.broker
def test_a_real_broker_answers_and_once_it_is_gone_it_does_not(broker: Broker) -> None:
    probe = BrokerProbe(BrokerSide((HostPort("127.0.0.1", broker.stream_port),)), every_s=0.05)
    assert probe.problem == "the broker has not been asked yet"
    probe.start()
    try:
        deadline = time.monotonic() + 30
        while probe.problem is not None:
            assert time.monotonic() < deadline, probe.problem
            time.sleep(0.05)
    finally:
        probe.stop()
