"""Bytes that no client would send, each with a name: before login, and after it."""

from __future__ import annotations

import random
import struct

from coldstream.gateway.frames.keys import ANSWER, Key
from coldstream.gateway.frames.requests import (
    Credit,
    PeerProperties,
    QueryOffset,
    SaslHandshake,
    StoreOffset,
    StreamStats,
    Subscribe,
    Unsubscribe,
)
from coldstream.manifest.spec import FIRST

STREAM = "orders"


def frame(key: int, fields: bytes = b"", *, version: int = 1, length: int | None = None) -> bytes:
    """Return a frame, whose length may be a lie."""
    return struct.pack(">IHH", 4 + len(fields) if length is None else length, key, version) + fields


_NOISE = random.Random(17).randbytes(64 << 10)

FATAL_BEFORE_LOGIN: dict[str, bytes] = {
    "noise": b"\xff" + _NOISE,
    "text of another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "the beginning of TLS": bytes.fromhex("16030100c8010000c40303") + _NOISE[:200],
    "the greatest length": b"\xff\xff\xff\xff" + _NOISE[:100],
    "a length of 2 GiB": b"\x80\x00\x00\x00" + _NOISE[:100],
    "more than 8 KiB before Open": frame(Key.PEER_PROPERTIES, bytes(9000)),
    "16 MiB before Open": frame(Key.PEER_PROPERTIES, length=16 << 20) + _NOISE,
    "an unknown key": frame(0x7777, b"\0\0\0\1"),
    "no key": b"\0\0\0\0" * 3,
    "half a key": b"\0\0\0\2\0\1" * 3,
}
"""After these the connection is ended."""

_SUBSCRIBE = Subscribe(7, 3, STREAM, FIRST, 10, {}).to_bytes()
_CORRELATION = b"\0\0\0\7"

FATAL_AFTER_LOGIN: dict[str, bytes] = {
    "an unknown key": frame(0x7777, _CORRELATION),
    "the greatest length": b"\xff\xff\xff\xff" + _NOISE[:100],
    "a Subscribe of the greatest length": frame(Key.SUBSCRIBE, length=0xFFFFFFFF) + _NOISE,
    "a Subscribe with a stream of negative length": frame(Key.SUBSCRIBE, _CORRELATION + b"\3\x80\x00" + bytes(20)),
    "a Subscribe whose stream is not UTF-8": frame(Key.SUBSCRIBE, _CORRELATION + b"\3\0\2\xff\xfe\0\1\0\1"),
    "a Subscribe with a spec of no type": frame(Key.SUBSCRIBE, _CORRELATION + b"\3\0\1o\0\x63\0\1"),
    "a Subscribe with 2 billion properties": frame(Key.SUBSCRIBE, _CORRELATION + b"\3\0\1o\0\1\0\1\x7f\xff\xff\xff"),
    "a Subscribe with -2 properties": frame(Key.SUBSCRIBE, _CORRELATION + b"\3\0\1o\0\1\0\1\xff\xff\xff\xfe"),
    "a Subscribe cut short": frame(Key.SUBSCRIBE, _SUBSCRIBE[8:15]),
    "an empty Subscribe": frame(Key.SUBSCRIBE),
    "a Credit cut short": frame(Key.CREDIT, b"\3"),
    "an Unsubscribe cut short": frame(Key.UNSUBSCRIBE, _CORRELATION),
    "a StoreOffset cut short": frame(Key.STORE_OFFSET, b"\0\1r\0\6orders\0\0"),
    "a QueryOffset cut short": frame(Key.QUERY_OFFSET, _CORRELATION + b"\0\1r\0\x40"),
    "a StreamStats that is not UTF-8": frame(Key.STREAM_STATS, _CORRELATION + b"\0\2\xff\xff"),
    "a ConsumerUpdate's answer cut short": frame(ANSWER | Key.CONSUMER_UPDATE, b"\0\0"),
    "no key": b"\0\0\0\0" * 3,
}
"""After these the connection is ended, too."""

HARMLESS: dict[str, bytes] = {
    "credit for what is not there": Credit(99, 5).to_bytes() * 100,
    "an Unsubscribe of what is not there": Unsubscribe(9, 99).to_bytes() * 100,
    "an answer to a question that nobody asked": frame(ANSWER | Key.CONSUMER_UPDATE, b"\0\0\0\x63\0\1\0\1"),
    "stored offsets of a stream that is not there": StoreOffset("r", "nowhere", 5).to_bytes() * 100,
    "the greatest offset stored": StoreOffset("r\n\r\0\x1b[31m", "no\nwhere", (1 << 64) - 1).to_bytes(),
    "many questions at once": b"".join(QueryOffset(at, "r", STREAM).to_bytes() for at in range(300)),
    "statistics, often": b"".join(StreamStats(at, STREAM).to_bytes() for at in range(300)),
    "a Subscribe to a name with line breaks": Subscribe(1, 7, "a\nERROR b\r\x1b[2J\0", FIRST, 1, {}).to_bytes(),
    "a Subscribe to a very long name": Subscribe(1, 7, "ü" * 10_000, FIRST, 1, {}).to_bytes(),
    "bytes after the last field": frame(Key.UNSUBSCRIBE, _CORRELATION + b"\x63" + bytes(500)),
}
"""These are answered, or ignored; the connection goes on."""

BEFORE_LOGIN_TOO_EARLY: dict[str, bytes] = {
    "Subscribe": _SUBSCRIBE,
    "Credit": Credit(3, 10).to_bytes(),
    "StoreOffset": StoreOffset("r", STREAM, 5).to_bytes(),
    "QueryOffset": QueryOffset(7, "r", STREAM).to_bytes(),
}
"""What nobody may ask who has not logged in."""

GREETING = PeerProperties(1, {"product": "abuse"}).to_bytes() + SaslHandshake(2).to_bytes()
