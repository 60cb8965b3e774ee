"""How much of a message a view holds, whatever the message holds."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidQueryError
from coldstream.units import KIB, MIB

MAX_SHOWN_BYTES = 4 * MIB
"""The most of one body that any view may hold."""

MAX_PAGE_MESSAGES = 500
MAX_HELD_BYTES = 256 * MIB
"""What all views of one answer may hold together, if every message is as large as their limits allow."""

SECTIONS = 6
"""Sections of a message at most, beside its body."""

MAX_UNPACKED_BYTES = 32 * MIB
"""A sub-batch that unpacks to more is not unpacked for a view: its messages are told as such."""


@dataclass(frozen=True, slots=True)
class ViewLimits:
    """How much of a message a view holds: bytes of a body, characters of a value, rows of a section.

    What is cut tells its true size.
    """

    body_bytes: int = 4 * KIB
    value_characters: int = 512
    section_rows: int = 200

    def __post_init__(self) -> None:
        for field, value, most in (
            ("body_bytes", self.body_bytes, MAX_SHOWN_BYTES),
            ("value_characters", self.value_characters, MIB),
            ("section_rows", self.section_rows, 10_000),
        ):
            if not 0 < value <= most:
                raise InvalidQueryError(field, f"{value} is not from 1 to {most}")

    def check_many(self, messages: int) -> None:
        """Raise InvalidQueryError unless so many views of this size may be held together."""
        held_bytes = messages * (self.body_bytes + SECTIONS * self.section_rows * self.value_characters)
        if held_bytes > MAX_HELD_BYTES:
            raise InvalidQueryError("limits", f"{messages} views of this size may take {held_bytes} bytes")


IN_A_LIST = ViewLimits(body_bytes=KIB, value_characters=200, section_rows=50)
ON_ITS_OWN = ViewLimits(body_bytes=256 * KIB, value_characters=16 * KIB, section_rows=1000)
