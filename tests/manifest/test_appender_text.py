"""The state of an appender as text comes back exactly, and nothing else is taken for it."""

from __future__ import annotations

import json

import pytest

from coldstream.errors import CorruptionError
from coldstream.manifest.appender import Appender, Opening, WalKind, WalPlace
from coldstream.manifest.appender_text import appender_of, appender_text
from coldstream.units import MAX_OFFSET, Epoch, Offset

FULL = Appender(
    Epoch(9),
    (Opening(Epoch(8), WalPlace(WalKind.DISK, "host-1", 3)), Opening(Epoch(9), WalPlace(WalKind.S3, "h", 10**9))),
    Offset(5),
    Offset(MAX_OFFSET + 1),
    is_sealed=True,
    properties=(("", ""), ("größe", '名"\n')),
)


@pytest.mark.parametrize("appender", [Appender(), FULL], ids=["default", "full"])
def test_it_comes_back_exactly(appender: Appender) -> None:
    assert appender_of(appender_text(appender), source="here") == appender


def changed(**fields: object) -> str:
    return json.dumps({**json.loads(appender_text(FULL)), **fields})


WAL = {"kind": "s3", "writer": "a", "epoch": 1}
GARBAGE = {
    "nothing": "",
    "no JSON": "{",
    "no object": "[]",
    "null": "null",
    "no fields": "{}",
    "text for a number": changed(epoch="9"),
    "less than none": changed(start=-1),
    "true for a number": changed(first=True),
    "a part of a number": changed(epoch=1.5),
    "a number for true": changed(is_sealed=1),
    "a number for text": changed(properties={"a": 1}),
    "no properties": changed(properties=[]),
    "openings of nothing": changed(openings=7),
    "an opening of nothing": changed(openings=[None]),
    "another kind of log": changed(openings=[{"epoch": 1, "wal": {**WAL, "kind": "tape"}}]),
    "a writer out of its prefix": changed(openings=[{"epoch": 1, "wal": {**WAL, "writer": "../x"}}]),
    "a writer that is no text": changed(openings=[{"epoch": 1, "wal": {**WAL, "writer": 7}}]),
    "a log before the first": changed(openings=[{"epoch": 1, "wal": {**WAL, "epoch": 0}}]),
}


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_names_its_source(text: str) -> None:
    with pytest.raises(CorruptionError, match="malformed state of an appender") as caught:
        appender_of(text, source="item 7")
    assert caught.value.source == "item 7"
