"""Content types, lifetimes, producers, cursors."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidInputError, InvalidQueryError
from coldstream.serve.protocol.content_type import ContentType
from coldstream.serve.protocol.lifetime import Lifetime, parse_lifetime
from coldstream.serve.protocol.live_cursor import INTERVAL_MS, ORIGIN_MS, next_cursor
from coldstream.serve.protocol.producer import EPOCH, ID, SEQ, Judgement, ProducerRequest, ProducerState, parse_producer
from coldstream.units import TimestampMs

NOW = TimestampMs(ORIGIN_MS + 1000 * INTERVAL_MS)


def test_a_media_type_has_no_case_and_no_parameters() -> None:
    assert ContentType.parse("Application/JSON; charset=utf-8").media_type == "application/json"
    assert ContentType.parse("Application/JSON; charset=utf-8").is_json
    assert not ContentType.parse("application/problem+json").is_json


def test_events_carry_text_as_it_is() -> None:
    found = [ContentType.parse(text).is_text for text in ("text/html", "application/json", "image/png")]
    assert found == [True, True, False]


@pytest.mark.parametrize("text", ["", "text", "text/", "/plain", "text/pl ain", "tëxt/plain", f"text/{'x' * 300}"])
def test_what_is_no_media_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        ContentType.parse(text)


def test_a_ttl_begins_anew_with_each_use() -> None:
    assert parse_lifetime("3600", None).ends_at(NOW) == NOW + 3_600_000
    assert parse_lifetime("0", None) == Lifetime(0)
    assert Lifetime().ends_at(NOW) is None


def test_an_expiry_is_a_time() -> None:
    assert parse_lifetime(None, "2026-01-31T09:30:00.5+01:00").ends_at(NOW) == 1_769_848_200_500
    assert parse_lifetime(None, "2026-01-31t08:30:00.5z").ends_at(NOW) == 1_769_848_200_500


@pytest.mark.parametrize("ttl", ["", "-1", "+1", "01", "1.5", "1e3", "\u0661", " 1", "99999999999"])
def test_a_malformed_ttl_is_refused(ttl: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_lifetime(ttl, None)


@pytest.mark.parametrize("time", ["", "tomorrow", "2026-01-31", "2026-01-31T09:30:00", "2026-13-01T00:00:00Z"])
def test_a_malformed_expiry_is_refused(time: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_lifetime(None, time)


def test_ttl_and_expiry_exclude_each_other() -> None:
    with pytest.raises(InvalidInputError):
        parse_lifetime("1", "2026-01-31T09:30:00Z")


def test_without_a_cursor_the_current_interval_is_sent() -> None:
    assert next_cursor(NOW, None) == next_cursor(NOW, "999") == "1000"


@pytest.mark.parametrize("sent", ["1000", "1001", "999999"])
def test_a_cursor_always_moves_on(sent: str) -> None:
    assert all(int(sent) < int(next_cursor(NOW, sent)) <= int(sent) + 180 for _ in range(100))


@pytest.mark.parametrize("sent", ["-1", "x", "1" * 16, "\u0661"])
def test_a_malformed_cursor_is_refused(sent: str) -> None:
    with pytest.raises(InvalidQueryError):
        next_cursor(NOW, sent)


def producer(epoch: int, seq: int) -> ProducerRequest:
    return ProducerRequest("p", ProducerState(epoch, seq))


@pytest.mark.parametrize(
    ("last", "epoch", "seq", "judgement"),
    [
        (None, 0, 0, Judgement.ACCEPT),
        (None, 7, 0, Judgement.ACCEPT),
        (None, 0, 1, Judgement.GAP),
        ((0, 0), 0, 0, Judgement.DUPLICATE),
        ((0, 5), 0, 3, Judgement.DUPLICATE),
        ((0, 5), 0, 6, Judgement.ACCEPT),
        ((0, 5), 0, 7, Judgement.GAP),
        ((0, 5), 1, 0, Judgement.ACCEPT),
        ((0, 5), 1, 1, Judgement.EPOCH_MUST_START_AT_ZERO),
        ((1, 0), 0, 6, Judgement.STALE_EPOCH),
    ],
)
def test_a_producer_is_judged_by_its_last_request(
    last: tuple[int, int] | None, epoch: int, seq: int, judgement: Judgement
) -> None:
    known = None if last is None else ProducerState(*last)
    assert producer(epoch, seq).judge(known) is judgement


@pytest.mark.parametrize("state", [(0, 0), (0, 1), (1, 0), (2**32 - 1, 2**32 - 1)])
def test_a_publishing_id_holds_epoch_and_number(state: tuple[int, int]) -> None:
    assert ProducerState.of_publishing_id(ProducerState(*state).publishing_id) == ProducerState(*state)
    assert 0 <= ProducerState(*state).publishing_id < 2**64


def test_publishing_ids_rise_with_epochs() -> None:
    assert ProducerState(1, 0).publishing_id > ProducerState(0, 2**32 - 1).publishing_id


def test_any_id_is_a_publisher() -> None:
    names = [ProducerRequest(id_, ProducerState(0, 0)).publisher for id_ in ("a", "é" * 100, "é" * 101, "x" * 5000)]
    assert len(set(names)) == len(names)
    assert all(len(name.encode()) <= 255 for name in names)


def test_producer_headers_come_together() -> None:
    assert parse_producer({}) is None
    assert parse_producer({ID: "p", EPOCH: "1", SEQ: "2"}) == producer(1, 2)


@pytest.mark.parametrize(
    "headers",
    [
        {ID: "p"},
        {ID: "p", EPOCH: "0"},
        {EPOCH: "0", SEQ: "0"},
        {ID: "", EPOCH: "0", SEQ: "0"},
        {ID: "p", EPOCH: "-1", SEQ: "0"},
        {ID: "p", EPOCH: "0", SEQ: "1.5"},
        {ID: "p", EPOCH: "0", SEQ: "1abc"},
        {ID: "p", EPOCH: "4294967296", SEQ: "0"},
        {ID: "p", EPOCH: "0", SEQ: "4294967296"},
    ],
)
def test_malformed_producer_headers_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        parse_producer(headers)
