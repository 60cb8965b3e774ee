"""Numbers, sizes, times and names as the pages write them."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta

from markupsafe import Markup, escape

from coldstream.units import TimestampMs

NONE = "\u2013"
"""What is written in place of a value that there is not: a dash."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_COUNTS = ("", "k", "M", "G", "T", "P", "E")
_HIDDEN = {"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"}
"""Categories of characters that are not seen, or that change how others are: controls, formats, line separators."""

_HIDDEN_IN_LINES = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
"""The same in texts that have lines: a class of characters, which is quick for a long one."""

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000


def number(value: float | None) -> str:
    """Write all digits, in groups of three."""
    return NONE if value is None else f"{value:,}"


def short_number(value: float | None) -> str:
    """Write a count in three digits or so: 12.3M."""
    if value is None:
        return NONE
    power = 0
    rounded = float(value)
    while abs(rounded) >= 999.5 and power < len(_COUNTS) - 1:  # noqa: PLR2004  what would be written as 1000
        rounded /= 1000
        power += 1
    if power == 0:
        return f"{value:,}"
    digits = 0 if rounded >= 99.95 else 1  # noqa: PLR2004  what would be written as 100.0
    return f"{rounded:.{digits}f}{_COUNTS[power]}"


def size(value: float | None) -> str:
    """Write a count of bytes in three digits or so: 12.3 MiB."""
    if value is None:
        return NONE
    power = 0
    rounded = float(value)
    while rounded >= 1023.5 and power < len(_SIZES) - 1:  # noqa: PLR2004  what would be written as 1024
        rounded /= 1024
        power += 1
    if power == 0:
        return f"{int(value)} B"
    digits = 0 if rounded >= 99.95 else 1  # noqa: PLR2004  what would be written as 100.0
    return f"{rounded:.{digits}f} {_SIZES[power]}"


def money(value: float | None) -> str:
    """Write US dollars: to the cent, and less than a cent to two digits that count."""
    if value is None:
        return NONE
    if value == 0:
        return "$0"
    if value < 0.01:  # noqa: PLR2004  a cent
        return f"${value:.2g}" if value >= 0.0001 else "< $0.0001"  # noqa: PLR2004
    return f"${value:,.2f}"


def moment(value: TimestampMs | None) -> str:
    """Write a time to the second, in UTC."""
    if value is None:
        return NONE
    try:
        return (_EPOCH + timedelta(milliseconds=value)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return str(value)


def moment_ms(value: TimestampMs | None) -> str:
    """Write a time to the millisecond, in UTC."""
    return NONE if value is None else f"{moment(value)}.{value % 1000:03}"


def duration(value_ms: float | None) -> str:
    """Write a duration in its largest one or two units."""
    if value_ms is None:
        return NONE
    value = max(0, round(value_ms))
    if value < _SECOND:
        return f"{value} ms"
    if value < _MINUTE:
        return f"{value // _SECOND} s"
    if value < _HOUR:
        return f"{value // _MINUTE} min"
    if value < _DAY:
        hours, rest = divmod(value, _HOUR)
        return f"{hours} h {rest // _MINUTE} min" if rest >= _MINUTE and hours < 10 else f"{hours} h"  # noqa: PLR2004
    days = value // _DAY
    return f"{days} days" if days > 1 else "1 day"


def ago(value: TimestampMs | None, now: TimestampMs) -> str:
    """Write how long ago a time was, or in what time it is."""
    if value is None:
        return NONE
    past = now - value
    if abs(past) < _SECOND:
        return "now"
    return f"{_roughly(past)} ago" if past > 0 else f"in {_roughly(-past)}"


def _roughly(value_ms: int) -> str:
    return f"{value_ms // _HOUR} h" if _HOUR <= value_ms < _DAY else duration(value_ms)


def percent(share: float | None) -> str:
    """Write a share of 1; never 100 % or 0 % for what is not quite."""
    if share is None:
        return NONE
    shown = round(share * 100)
    if shown == 100 and share < 1:  # noqa: PLR2004
        return "> 99 %"
    return "< 1 %" if shown == 0 and share > 0 else f"{shown} %"


def plain(text: str, most: int = 300) -> str:
    """Write a text where there can be no markup, with what would not be seen written out, cut at a length."""
    shown = "".join(_written(char) if _is_hidden(char) else char for char in text[:most])
    return f"{shown}…" if len(text) > most else shown


def visible(text: str, most: int = 300) -> Markup:
    """Write a text that somebody else chose: escaped, in its own direction, with what would not be seen written out."""
    parts: list[Markup] = []
    run = ""
    last = len(text) - 1
    for at, char in enumerate(text[:most]):
        # A space at an end, or after another, would not be seen either.
        is_lost = char == " " and (at in {0, last} or text[at - 1] == " ")
        if not is_lost and not _is_hidden(char):
            run += char
            continue
        parts += [escape(run), Markup('<span class="esc">{}</span>').format("␠" if is_lost else _written(char))]
        run = ""
    parts.append(escape(run))
    if len(text) > most:
        parts.append(Markup('<span class="esc">… {} characters</span>').format(len(text)))
    return Markup("<bdi>{}</bdi>").format(Markup("").join(parts))


def body_text(text: str) -> Markup:
    """Write the lines of a body: escaped, with what would not be seen, or would turn others around, written out."""
    parts: list[Markup] = []
    at = 0
    for found in _HIDDEN_IN_LINES.finditer(text):
        written = Markup('<span class="esc">{}</span>').format(_written(found[0]))
        parts += [escape(text[at : found.start()]), written]
        at = found.end()
    return Markup("").join([*parts, escape(text[at:])])


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN or (char != " " and char.isspace())


def _written(char: str) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
    code = ord(char)
    return short.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}")  # noqa: PLR2004  one byte
