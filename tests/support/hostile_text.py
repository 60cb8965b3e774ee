"""Names and bodies that whoever shows them has to treat as data: what would be markup, code or layout elsewhere.

HOSTILE_TEXTS    texts by a short id; each fits into a stream's name
hostile_streams  a stream for each of them
HOSTILE_BODIES   bodies of messages by a short id, those texts among them
"""

from __future__ import annotations

import json

from coldstream.manifest.stream import Incarnation, StreamId

SCRIPT_MARK = "coldstream-was-here"
"""A script of the corpus that runs would set `document.title` to this."""

HOSTILE_TEXTS: dict[str, str] = {
    "script": f"<script>document.title='{SCRIPT_MARK}'</script>",
    "image": f"<img src=x onerror=\"document.title='{SCRIPT_MARK}'\">",
    "end of an attribute": f'" autofocus onfocus="document.title=\'{SCRIPT_MARK}\'" x="',
    "end of an attribute, single": f"' onmouseover='document.title=\"{SCRIPT_MARK}\"' x='",
    "end of a tag": "--></title></textarea></style></script><h1>out</h1><!--",
    "cdata": "]]><![CDATA[<b>",
    "svg": f"<svg/onload=document.title='{SCRIPT_MARK}'>",
    "url": f"javascript:document.title='{SCRIPT_MARK}'",
    "htmx": '<div hx-get="/evil" hx-trigger="load">',
    "entity": "&lt;b&gt; &amp;amp; &#60;script&#62; &nbsp",
    "quotes": "'\"`\\",
    "template": "{{ 7 * 7 }} {% raw %} ${7*7} #{7*7} <%= 7*7 %>",
    "format": "%s %(name)s {0} {name!r} $HOME `id` $(id)",
    "sql": "'; DROP TABLE streams; --",
    "formula": '=HYPERLINK("http://example.org","x")',
    "path": "../../../etc/passwd",
    "windows path": "..\\..\\con.txt:stream",
    "query": "a?b=c&d=e#f%2F%00+g h",
    "percent": "%3Cscript%3E%",
    "newlines": "one\ntwo\r\nthree\u2028four\u2029five\x85six",
    "header": "x\r\nSet-Cookie: session=stolen\r\n\r\n<html>",
    "nul": "before\0after",
    "controls": "\x01\x07\x08\x1b[31mred\x1b[0m\x7f",
    "right to left": "\u202egnp.exe\u202c \u2066isolated\u2069 שלום مرحبا",
    "invisible": "a\u200bb\u200cc\u200dd\ufeffe\u00adf",
    "combining": "Z" + "\u0351\u0343\u0300" * 20,
    "look-alike": "\u043erders",
    "astral": "\U0001f407 \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001d54f \U0010fffd",
    "spaces": "  leading, trailing\t\u00a0\u3000 ",
    "one space": " ",
    "dots": "..",
    "long": "x" * 255,
    "long and wide": "Ö" * 127,
    "long without a break": "W" * 254,
    "turkish": "\u0130stanbul \u0131 \u00df \ufb01",
    "undefined": "undefined",
    "null": "null",
    "prototype": "__proto__",
    "log head": "log#head",
    "number": "1e309",
}


def hostile_streams(vhost: str = "/") -> tuple[StreamId, ...]:
    """Return a stream of each name, in the order of the corpus."""
    return tuple(
        StreamId(vhost, text, Incarnation(f"__hostile_{1_763_700_000_000_000_000 + number}"))
        for number, text in enumerate(HOSTILE_TEXTS.values())
    )


HOSTILE_BODIES: dict[str, bytes] = {
    **{f"text: {id_}": text.encode() for id_, text in HOSTILE_TEXTS.items()},
    **{
        f"json: {id_}": json.dumps({text: [text, {"again": text}]}, ensure_ascii=number % 2 == 0).encode()
        for number, (id_, text) in enumerate(HOSTILE_TEXTS.items())
    },
    "empty": b"",
    "every byte": bytes(range(256)),
    "not utf-8": b"\xff\xfe caf\xe9",
    "overlong": b"\xc0\xbcscript\xc0\xbe",
    "surrogate": b"\xed\xa0\x80",
    "cut in a character": "ä".encode()[:1],
    "nested too deep": b"[" * 100_000 + b"]" * 100_000,
    "nested deep": b"[" * 400 + b"]" * 400,
    "never ends": b'{"a": [1, 2',
    "huge number": b'{"n": ' + b"9" * 100_000 + b"}",
    "numbers": b'{"exact": 0.1000000000000000055511151231257827, "big": 12345678901234567890123, "e": 1E400}',
    "equal keys": b'{"a": 1, "a": 2, "__proto__": {"x": 1}}',
    "no json constant": b'{"a": NaN, "b": Infinity}',
    "byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "jsonp": b"/**/alert({})//",
    "long line": b"x" * 300_000,
    "many lines": b"\n" * 100_000,
    "html page": b"<!doctype html><html><head><base href='//evil'><meta http-equiv=refresh content='0;url=//evil'>",
    "xml bomb": b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x>&b;</x>',
    "zip": b"PK\x03\x04" + bytes(60),
    "gzip": bytes.fromhex("1f8b0800000000000003") + bytes(20),
}
