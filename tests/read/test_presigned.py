"""Reads by presigned URLs over HTTP that can fail, and that can be cut."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from coldstream.errors import (
    AccessDeniedError,
    ColdstreamError,
    NotRestoredError,
    ObjectNotFoundError,
    ReplacedError,
    UnavailableError,
)
from coldstream.read.http import ClosedError
from coldstream.read.presigned import PresignedReads
from coldstream.units import ByteRange
from tests.support.http_archive import Fault, HttpObjects, ObjectServer, object_server

KEY = "data/ä key"
RANGE = ByteRange(2, 6)


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    objects = HttpObjects()
    objects.put(KEY, b"0123456789")
    with object_server(objects) as running:
        yield running


def reads_of(server: ObjectServer, attempts: int = 2) -> PresignedReads:
    return PresignedReads(server.objects, connections=2, read_timeout_s=5, attempts=attempts)


def test_a_range_comes_with_the_size_of_its_object(server: ObjectServer) -> None:
    found = reads_of(server).get_range(KEY, RANGE)
    assert (found.data, found.object_bytes) == (b"2345", 10)
    assert reads_of(server).get_range(KEY, ByteRange(8, 100)).data == b"89"


def test_a_refused_url_is_signed_anew_once(server: ObjectServer) -> None:
    server.faults = lambda get: Fault(status=403) if get.number == 0 else None
    assert reads_of(server).get_range(KEY, RANGE).data == b"2345"
    assert server.objects.signed == 2


@pytest.mark.parametrize(
    ("fault", "error", "gets"),
    [
        (Fault(status=403), AccessDeniedError, 2),
        (Fault(status=400), AccessDeniedError, 2),
        (Fault(status=404), ObjectNotFoundError, 1),
        (Fault(status=412), ReplacedError, 1),
        (Fault(status=403, body=b"<Code>InvalidObjectState</Code>"), NotRestoredError, 1),
        (Fault(status=500), UnavailableError, 2),
        (Fault(status=429), UnavailableError, 2),
        (Fault(keep_bytes=1), UnavailableError, 2),
        (Fault(status=206, body=b"2345"), UnavailableError, 2),  # of which range?
        (Fault(status=200, body=b"0123456789"), ColdstreamError, 1),
    ],
)
def test_what_stays_wrong_is_a_typed_error(
    server: ObjectServer, fault: Fault, error: type[ColdstreamError], gets: int
) -> None:
    server.faults = lambda _: fault
    with pytest.raises(error) as raised:
        reads_of(server).get_range(KEY, RANGE)
    assert type(raised.value) is error
    assert len(server.gets) == gets


def test_closing_ends_a_request_that_hangs(server: ObjectServer) -> None:
    server.faults = lambda _: Fault(stall_s=60)
    reads = PresignedReads(server.objects, connections=2, read_timeout_s=60)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(reads.get_range, KEY, RANGE)
        assert server.got_one.wait(10)
        closer = threading.Timer(0, reads.close)
        closer.start()
        with pytest.raises(ClosedError):
            hanging.result(10)
        closer.join()
    with pytest.raises(ClosedError):
        reads.get_range(KEY, RANGE)
