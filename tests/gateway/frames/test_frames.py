"""Frames as values: what is encoded decodes to the same, and what is cut off or makes no sense is a typed error."""

from __future__ import annotations

import pytest

from coldstream.errors import BadFrameError
from coldstream.gateway.frames import answers, requests
from coldstream.gateway.frames.answers import MetadataAnswer, PartitionsAnswer, StreamStatsAnswer, plain_answer
from coldstream.gateway.frames.frame import StreamFrame, key_of
from coldstream.gateway.frames.keys import Key
from coldstream.gateway.frames.requests import (
    ConsumerUpdateAnswer,
    ExchangeCommandVersions,
    SaslAuthenticate,
    Subscribe,
)
from coldstream.manifest.spec import FIRST, AtOffset, AtTimestamp
from coldstream.units import Offset, TimestampMs

SAMPLES: tuple[StreamFrame, ...] = (
    Subscribe(7, 3, "été", FIRST, 10, {"filter.0": "a", "name": "n"}),
    Subscribe(7, 3, "s", AtOffset(Offset(2**63)), 10, {}),
    Subscribe(7, 3, "s", AtTimestamp(TimestampMs(-5)), 0, {}),
    ConsumerUpdateAnswer(1, 1, None),
    SaslAuthenticate(1, "PLAIN", b"\0u\0p"),
    SaslAuthenticate(1, "PLAIN", None),
    ExchangeCommandVersions(1, ((1, 1, 1), (2, 1, 2))),
    MetadataAnswer(1, ((0, "h", 5552),), (("s", 1, 0, (0,)), ("t", 2, 65535, ()))),
    PartitionsAnswer(1, 1, ("a", "b")),
    StreamStatsAnswer(1, 1, (("first_chunk_id", -1),)),
)


@pytest.mark.parametrize("frame", SAMPLES, ids=lambda frame: type(frame).__name__)
def test_what_is_encoded_decodes_to_the_same(frame: StreamFrame) -> None:
    encoded = frame.to_bytes()
    assert int.from_bytes(encoded[:4]) == len(encoded) - 4
    assert key_of(encoded[4:]) == (frame.KEY, 1)
    assert type(frame).from_body(encoded[4:]) == frame


@pytest.mark.parametrize("frame", SAMPLES, ids=lambda frame: type(frame).__name__)
def test_every_truncation_is_a_bad_frame(frame: StreamFrame) -> None:
    body = frame.to_bytes()[4:]
    # A list of properties may be left out as a whole, and so its count may be.
    left_out = len(type(frame).from_body(body).to_bytes()) - 8 if "properties" in frame.__slots__ else None
    for size in range(4, len(body)):
        try:
            found = type(frame).from_body(body[:size])
        except BadFrameError:
            continue
        assert left_out is not None
        assert getattr(found, "properties", None) == {}


def test_a_count_that_the_frame_cannot_hold_is_refused_before_anything_is_made() -> None:
    body = bytes.fromhex("8019 0001 00000001 0001 7fffffff")
    with pytest.raises(BadFrameError, match="2147483647 items"):
        PartitionsAnswer.from_body(body)


@pytest.mark.parametrize("module", [requests, answers])
def test_every_frame_has_as_many_fields_as_values(module: object) -> None:
    classes = [found for found in vars(module).values() if isinstance(found, type) and issubclass(found, StreamFrame)]
    assert len(classes) > 10
    for found in classes:
        if found is not StreamFrame:
            assert len(found.FIELDS) == len(found.__slots__)


def test_a_plain_answer_has_the_key_of_its_request() -> None:
    assert plain_answer(Key.UNSUBSCRIBE, 5, 4) == bytes.fromhex("0000000a 800c 0001 00000005 0004")
