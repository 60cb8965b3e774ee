"""Sections: the parts of an AMQP 1.0 message.

    message        sections, one after another; a message without sections has no bytes
    section        0x00 · descriptor · value (values.py); descriptor: a ulong, or a symbol such as amqp:data:binary

    descriptor     section                   value
    0x70           header                    list of up to 5 fields
    0x71           delivery annotations      map
    0x72           message annotations       map
    0x73           properties                list of up to 13 fields
    0x74           application properties    map
    0x75           data                      binary            the body is one or more of data,
    0x76           amqp-sequence             list              or one or more sequences,
    0x77           amqp-value                any               or one value
    0x78           footer                    map

Only data and sequences may repeat. The specification fixes the order of sections. Here any order is accepted, because
clients differ (rstream writes delivery annotations last) and nothing depends on it.

Upstream: OASIS AMQP 1.0, part 3, section 2.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

from coldstream.errors import BadCountError, BadMagicError, BadVersionError, CorruptionError, TruncatedError
from coldstream.format.amqp.types import Symbol, Value
from coldstream.format.amqp.values import U32, decode, decode_prefix, skip

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

Sections: TypeAlias = dict[int, tuple[int, ...]]
"""By descriptor, the start and end in the message of the section's value, and of each repetition of the section."""


class Header(NamedTuple):
    """The delivery settings of a message. A field that the publisher left out is None; `ttl` is in ms."""

    durable: Value = None
    priority: Value = None
    ttl: Value = None
    first_acquirer: Value = None
    delivery_count: Value = None


class Properties(NamedTuple):
    """The standard properties of a message, in the types of the publisher. A field that was left out is None."""

    message_id: Value = None
    user_id: Value = None
    to: Value = None
    subject: Value = None
    reply_to: Value = None
    correlation_id: Value = None
    content_type: Value = None
    content_encoding: Value = None
    absolute_expiry_time: Value = None
    creation_time: Value = None
    group_id: Value = None
    group_sequence: Value = None
    reply_to_group_id: Value = None


def locate(message: bytes, *, source: str) -> Sections:
    """Find the sections of a message by their sizes, decoding none.

    Raises BadMagicError for bytes that are no AMQP 1.0 message at all, BadVersionError for an unknown section or one
    of another type than its own, BadCountError for a second one where there may be one, TruncatedError.
    """
    sections: Sections = {}
    at, size = 0, len(message)
    while at < size:
        try:
            (head,) = U32(message, at)
            # A value begins at its constructor, after three bytes; its size counts from after the size's own field.
            if head in _NARROW:
                code, start, end = _NARROW[head], at + 3, at + 5 + message[at + 4]
            elif head in _WIDE:
                code, start, end = _WIDE[head], at + 3, at + 8 + U32(message, at + 4)[0]
            else:
                code, start, end = _unusual(message, at, source)
        except (IndexError, struct.error) as err:
            # First of all: bytes that are no AMQP may be too short for a section's head, and must not count as damaged
            # AMQP.
            _check_magic(message, source)
            raise TruncatedError(source, at, "section of an AMQP message") from err
        if end > size:
            raise TruncatedError(source, at, f"section 0x{code:02x} of an AMQP message", expected=end, found=size)
        if code not in sections:
            sections[code] = (start, end)
        elif code in _REPEATABLE:
            sections[code] += (start, end)
        else:
            raise BadCountError(source, at, f"sections 0x{code:02x} of an AMQP message", expected=1, found="more")
        at = end
    return sections


def read_section(message: bytes, sections: Sections, code: int, *, source: str) -> Value:
    """Decode a section other than the body's: a Header, Properties or map; None where the message has none.

    Raises as `decode`, BadCountError for more fields than there are, CorruptionError for a key that is a list or map.
    """
    if code not in sections:
        return None
    start, end = sections[code]
    value = decode(message, start, end, source=source)
    if code not in _FIELDS:
        if type(value) is not dict:
            raise CorruptionError(
                source, start, f"keys of section 0x{code:02x} of an AMQP message are not simple values"
            )
        return value
    kind, most = _FIELDS[code]
    if len(value) > most:
        raise BadCountError(
            source,
            start,
            f"fields in section 0x{code:02x} of an AMQP message",
            expected=f"at most {most}",
            found=len(value),
        )
    return kind(*value)


def body_section(sections: Sections, *, source: str) -> int | None:
    """Return the kind of the body: DATA, SEQUENCE, VALUE, or None if the message has no body.

    Raises BadCountError for a mixture.
    """
    data, sequence, value = DATA in sections, SEQUENCE in sections, VALUE in sections
    if data + sequence + value > 1:
        raise BadCountError(source, 0, "kinds of body in an AMQP message", expected=1, found="more")
    if data:
        return DATA
    if sequence:
        return SEQUENCE
    return VALUE if value else None


def read_body(message: bytes, sections: Sections, *, source: str) -> Value:
    """Decode the body: the bytes of all data sections, the items of all sequences, or the value; None without a body.

    Raises the errors of `decode` and `body_section`.
    """
    code = body_section(sections, source=source)
    if code is None:
        return None
    spans = sections[code]
    if code == DATA:
        if len(spans) == 2:  # noqa: PLR2004  (start and end of the only one)
            start, end = spans
            return message[start + _BINARY_HEADER_BYTES[message[start]] : end]
        pieces = zip(spans[::2], spans[1::2], strict=True)
        return b"".join(message[start + _BINARY_HEADER_BYTES[message[start]] : end] for start, end in pieces)
    if code == SEQUENCE:
        lists = zip(spans[::2], spans[1::2], strict=True)
        return [item for start, end in lists for item in decode(message, start, end, source=source)]
    return decode(message, *spans, source=source)


def _unusual(message: bytes, at: int, source: str) -> tuple[int, int, int]:
    """Return descriptor, and start and end of the value, of a section that does not begin as the common ones do."""
    _check_magic(message, source)
    if message[at]:
        raise BadVersionError(source, at, "section of an AMQP message", expected="0x00", found=f"0x{message[at]:02x}")
    descriptor, start = decode_prefix(message, at + 1, source=source)
    code = _SYMBOLS.get(descriptor, 0) if isinstance(descriptor, Symbol) else descriptor
    if type(code) is not int or code not in _CONSTRUCTORS:
        raise BadVersionError(source, at, "descriptor of a section of an AMQP message", found=repr(descriptor)[:80])
    allowed = _CONSTRUCTORS[code]
    if allowed is not None and message[start] not in allowed:
        raise BadVersionError(
            source,
            start,
            f"type of section 0x{code:02x} of an AMQP message",
            expected=f"one of 0x{allowed.hex(' ')}",
            found=f"0x{message[start]:02x}",
        )
    return code, start, skip(message, start)


def _check_magic(message: bytes, source: str) -> None:
    if message[0]:
        raise BadMagicError(source, 0, "not an AMQP 1.0 message", expected="0x00", found=f"0x{message[0]:02x}")


_LIST = b"\xc0\xd0\x45"
_MAP = b"\xc1\xd1"
_BINARY = b"\xa0\xb0"
_CONSTRUCTORS: dict[int, bytes | None] = {
    HEADER: _LIST,
    DELIVERY_ANNOTATIONS: _MAP,
    MESSAGE_ANNOTATIONS: _MAP,
    PROPERTIES: _LIST,
    APPLICATION_PROPERTIES: _MAP,
    DATA: _BINARY,
    SEQUENCE: _LIST,
    VALUE: None,
    FOOTER: _MAP,
}
_SYMBOLS = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_REPEATABLE = frozenset((DATA, SEQUENCE))
_FIELDS: dict[int, tuple[type[Header | Properties], int]] = {
    HEADER: (Header, len(Header._fields)),
    PROPERTIES: (Properties, len(Properties._fields)),
}
_BINARY_HEADER_BYTES = {0xA0: 2, 0xB0: 5}

# The first four bytes of nearly every section, as one number: 0x00 0x53 (a ulong of one byte), the descriptor, and a
# constructor whose size is one byte (narrow) or four (wide).
_NARROW = {0x00530000 | code << 8 | kind[0]: code for code, kind in _CONSTRUCTORS.items() if kind}
_WIDE = {0x00530000 | code << 8 | kind[1]: code for code, kind in _CONSTRUCTORS.items() if kind}
