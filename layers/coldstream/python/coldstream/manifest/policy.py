"""Policies of retention: for which streams what is kept, and when fragments go to a colder storage class."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from coldstream.errors import InvalidInputError, InvalidSettingError
from coldstream.manifest.access import pattern_of
from coldstream.manifest.entry import StorageClass
from coldstream.manifest.stream import StreamId

MAX_PATTERN_BYTES = 1000
MAX_NUMBER = (1 << 63) - 1
"""More than any age, size or priority can be; DynamoDB keeps 38 digits."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True)
class Policy:
    """What to keep of the streams that `pattern` matches, which has the form of a grant's (`manifest.access`).

    Of the policies that match a stream the one of the greatest priority counts, alone. The oldest fragments go while
    all of their chunks are older than `max_age_ms`, or the objects together are larger than `max_bytes`; without either
    the stream is kept for ever. Never less is kept than `least_messages`, `least_bytes` and what is younger than
    `least_age_ms`. Fragments older than `storage_class_age_ms` go to `storage_class`.
    """

    name: str
    pattern: str
    priority: int = 0
    max_age_ms: int | None = None
    max_bytes: int | None = None
    least_messages: int | None = None
    least_bytes: int | None = None
    least_age_ms: int | None = None
    storage_class: StorageClass | None = None
    storage_class_age_ms: int | None = None

    def __post_init__(self) -> None:
        check_policy_name(self.name)
        try:
            pattern_of(self.pattern)
        except InvalidInputError as err:
            raise InvalidSettingError("streams", err.problem) from err
        if (size_bytes := len(self.pattern.encode())) > MAX_PATTERN_BYTES:
            raise InvalidSettingError("streams", f"has {size_bytes} bytes, of {MAX_PATTERN_BYTES} at most")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith(("_ms", "_bytes", "_messages")) and value is not None and value < 0:
                raise InvalidSettingError(field.name, f"{value} is less than 0")
            if isinstance(value, int) and abs(value) > MAX_NUMBER:
                raise InvalidSettingError(field.name, f"{value} is past {MAX_NUMBER}")
        if (self.storage_class is None) != (self.storage_class_age_ms is None):
            raise InvalidSettingError(
                "storage_class", "needs an age from which on it counts, and the age needs a class"
            )

    def matches(self, stream: StreamId) -> bool:
        """Tell whether the policy is for a stream."""
        return pattern_of(self.pattern).matches(stream.vhost, stream.name)


def check_policy_name(name: str) -> None:
    """Raise InvalidSettingError unless a policy can have this name."""
    if not _NAME.fullmatch(name):
        raise InvalidSettingError("name", f"{name[:80]!r} is not 1 to 128 characters of A-Z a-z 0-9 _ . -")


def match(policies: Iterable[Policy], stream: StreamId) -> Policy | None:
    """Return the policy for a stream, None if no policy matches. Of the same priority the first by name counts."""
    return min(
        (one for one in policies if one.matches(stream)), key=lambda one: (-one.priority, one.name), default=None
    )
