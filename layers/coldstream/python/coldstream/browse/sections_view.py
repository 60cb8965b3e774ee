"""The sections of a message as rows, and its body, from its bytes; what is damaged is told, and hides nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from coldstream.browse.body_view import BodyKind, BodyView
from coldstream.browse.limits import ViewLimits
from coldstream.browse.message_view import SectionRow, SectionView
from coldstream.browse.value_text import json_of, value_text
from coldstream.errors import BadCountError, CorruptionError
from coldstream.format.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Header,
    Properties,
    Sections,
    body_section,
    read_body,
)
from coldstream.format.amqp.typed import TypedValue, typed_elements, typed_value
from coldstream.units import KIB

MAX_DECODED_BYTES = 256 * KIB
"""A section, or a body of values, that is larger is not decoded: decoded values take many times their bytes."""

_NAMES = {
    HEADER: "header",
    DELIVERY_ANNOTATIONS: "delivery-annotations",
    MESSAGE_ANNOTATIONS: "message-annotations",
    PROPERTIES: "properties",
    APPLICATION_PROPERTIES: "application-properties",
    FOOTER: "footer",
}
_FIELDS = {HEADER: Header._fields, PROPERTIES: Properties._fields}


def section_views(raw: bytes, sections: Sections, limits: ViewLimits, *, source: str) -> tuple[SectionView, ...]:
    """Return the sections other than the body that a message has, in AMQP's order."""
    return tuple(_section_view(raw, sections[code], code, limits, source) for code in _NAMES if code in sections)


def whole_body(raw: bytes, sections: Sections, *, source: str) -> BodyView | None:
    """Return all of the body, None if there is none. Raises CorruptionError."""
    code = body_section(sections, source=source)
    if code is None:
        return None
    if code == DATA:
        return _whole(BodyKind.DATA, read_body(raw, sections, source=source))
    spans = sections[code]
    kind = BodyKind.VALUE if code == VALUE else BodyKind.SEQUENCE
    if sum(spans[1::2]) - sum(spans[::2]) > MAX_DECODED_BYTES:
        return _whole(kind, raw[spans[0] : spans[-1]], type_="too large to decode")
    if code == SEQUENCE:
        typed = TypedValue("list", read_body(raw, sections, source=source))
    else:
        typed = typed_value(raw, *spans, source=source)
    is_text, is_binary = isinstance(typed.value, str), isinstance(typed.value, bytes)
    found = typed.value if is_binary else (typed.value if is_text else json_of(typed.value)).encode()
    return _whole(kind, found, is_rendered=not (is_text or is_binary), type_=typed.type)


def raw_body(raw: bytes) -> BodyView:
    """Return all bytes of a message as its body: it is not AMQP."""
    return _whole(BodyKind.RAW, raw)


def cut_body(body: BodyView | None, limits: ViewLimits) -> BodyView | None:
    """Return the beginning of a body."""
    if body is None or body.size_bytes <= limits.body_bytes:
        return body
    return replace(body, data=body.data[: limits.body_bytes])


def _whole(kind: BodyKind, found: bytes, *, is_rendered: bool = False, type_: str = "binary") -> BodyView:
    return BodyView(kind, found, len(found), is_rendered, type_)


def _section_view(raw: bytes, span: tuple[int, ...], code: int, limits: ViewLimits, source: str) -> SectionView:
    name = _NAMES[code]
    rows: list[SectionRow] = []
    count = 0
    start, end = span
    if end - start > MAX_DECODED_BYTES:
        return SectionView(name, (), 0, f"has {end - start} bytes, and is not decoded: download the message")
    try:
        for title, typed in _named(raw, span, code, limits, source):
            if code in _FIELDS and typed.value is None:
                continue  # a field that the publisher left out
            count += 1
            if count <= limits.section_rows:
                text, characters = value_text(typed.value, limits.value_characters)
                rows.append(SectionRow(title, _type_of(typed), text, characters, is_cut=characters > len(text)))
    except CorruptionError as err:
        return SectionView(name, tuple(rows), count, str(err))
    return SectionView(name, tuple(rows), count)


def _named(
    raw: bytes, span: tuple[int, ...], code: int, limits: ViewLimits, source: str
) -> Iterator[tuple[str, TypedValue]]:
    """Yield the values of a section with their names: those of AMQP's fields, or the keys of a map."""
    start, end = span
    elements = typed_elements(raw, start, end, source=source)
    if code in _FIELDS:
        names = _FIELDS[code]
        for number, typed in enumerate(elements):
            if number == len(names):
                what = f"fields in section 0x{code:02x} of an AMQP message"
                raise BadCountError(source, start, what, expected=f"at most {len(names)}", found="more")
            yield names[number].replace("_", "-"), typed
        return
    for key in elements:
        value = next(elements, None)
        if value is None:
            what = "keys and values of an AMQP map"
            raise BadCountError(source, start, what, expected="an even number", found="an odd one")
        yield value_text(key.value, limits.value_characters)[0], value


def _type_of(typed: TypedValue) -> str:
    # Brokers make strings of any bytes in the headers of an AMQP 0.9.1 message; the decoder leaves them as bytes.
    is_broken = typed.type in {"string", "symbol"} and isinstance(typed.value, bytes)
    return f"{typed.type}, not UTF-8" if is_broken else typed.type
