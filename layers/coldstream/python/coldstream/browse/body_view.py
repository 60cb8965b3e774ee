"""The body of a message as people look at it: as text, as JSON, or as a hex dump, cut at a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from coldstream.browse.json_text import pretty_json

HEX_COLUMNS = 16


class BodyKind(StrEnum):
    """What a body is: AMQP's three kinds, or all bytes of a message that is not AMQP."""

    DATA = "data"
    SEQUENCE = "sequence"
    VALUE = "value"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class BodyView:
    """The first bytes of a body, and the size of all of it.

    `data` is what was published: the bytes of the data sections, of a value that is text or binary, or of the whole
    message if it is not AMQP. Any other value, and a sequence, is there as JSON, and `is_rendered` says so; one that is
    too large to be decoded is there as its bytes. `type` is AMQP's name of a value's type.
    """

    kind: BodyKind
    data: bytes
    size_bytes: int
    is_rendered: bool = False
    type: str = "binary"

    @property
    def is_cut(self) -> bool:
        """Whether `data` is only the beginning."""
        return len(self.data) < self.size_bytes

    @property
    def text(self) -> str | None:
        """The beginning as text, None if it is not UTF-8. A character that the cut went through is left out."""
        try:
            return self.data.decode()
        except UnicodeDecodeError as err:
            is_of_the_cut = self.is_cut and err.reason == "unexpected end of data"
            return self.data[: err.start].decode() if is_of_the_cut else None

    @property
    def json(self) -> str | None:
        """The body as indented JSON, its numbers and strings as they were written.

        None unless all of it is there, and is JSON.
        """
        return None if self.is_cut else pretty_json(self.data)

    def hex_lines(self) -> Iterator[str]:
        """Yield the hex dump of the beginning: position, 16 bytes, and their printable ASCII."""
        for at in range(0, len(self.data), HEX_COLUMNS):
            row = self.data[at : at + HEX_COLUMNS]
            digits = f"{row[:8].hex(' ')}  {row[8:].hex(' ')}"
            shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)  # noqa: PLR2004  printable ASCII
            yield f"{at:08x}  {digits:<49}|{shown}|"

    @property
    def hex_dump(self) -> str:
        """The hex dump as one text."""
        return "\n".join(self.hex_lines())
