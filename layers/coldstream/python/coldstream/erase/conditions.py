"""The conditions of an erasure, from what a user says: values become salted digests at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coldstream.erase.selection import Selection
from coldstream.erase.value_digest import ValueDigest
from coldstream.errors import InvalidSettingError
from coldstream.format.amqp.field import MessageField
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads
from coldstream.units import Offset


def read_conditions(
    filter_value: str | None, key: str | None, properties: Sequence[str], function: str | None
) -> Selection | None:
    """Return what selects messages by their contents, without its function loaded; None if nothing does.

    Each of `properties` is FIELD=VALUE. Raises InvalidSettingError.
    """
    if filter_value is None and key is None and not properties and function is None:
        return None
    return Selection(
        filter_value=None if filter_value is None else _digest(filter_value, "--filter-value"),
        key=None if key is None else _digest(key, "--key"),
        properties=tuple(map(_property, properties)),
        function=function,
    )


def within(
    table: ManifestReads,
    stream: StreamId,
    conditions: Selection | None,
    first_offset: Offset,
    next_offset: Offset | None,
) -> Selection:
    """Return the conditions, if any, with offsets; `next_offset` None is the tail of now. Cost: a GetItem for that."""
    if next_offset is None:
        head = table.head(stream.incarnation)
        next_offset = None if head is None else head.next_offset
    if conditions is None:
        return Selection(first_offset, next_offset)
    return replace(conditions, first_offset=first_offset, next_offset=next_offset)


def _property(text: str) -> tuple[MessageField, ValueDigest]:
    field, separator, value = text.partition("=")
    if not separator:
        # Without what was typed: it may be the value, which is to stay out of logs.
        raise InvalidSettingError("--property", "must be FIELD=VALUE, such as properties.user_id=alice")
    return MessageField.parse(field, "--property"), _digest(value, "--property")


def _digest(value: str, option: str) -> ValueDigest:
    # Bytes that are no UTF-8 come as lone surrogates, and would be compared with text that no message has.
    if any("\ud800" <= one <= "\udfff" for one in value):
        raise InvalidSettingError(
            option, "the value is not UTF-8, and fields are compared as text: a function sees their bytes, by --where"
        )
    return ValueDigest.of(value)
