"""Times, durations and sizes as options say them: each is read here, so that all commands refuse them alike."""

from __future__ import annotations

from collections.abc import Callable

from coldstream.units import TimestampMs, now_ms, parse_duration, parse_time

TIME_HELP = "a time: 2026-01-31T09:30:00Z, 2026-01-31, yesterday, -1h."


def parse_option(option: str, text: str | None, parse: Callable[[str], int]) -> int | None:
    """Read what an option says, None if it was not given. Raises InvalidSettingError, which names the option."""
    from coldstream.errors import InvalidSettingError

    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as err:
        raise InvalidSettingError(option, str(err)) from err


def time_of(option: str, text: str | None, now: Callable[[], TimestampMs] = now_ms) -> TimestampMs | None:
    """Read the time that an option says, by the clock `now` if it says how long ago. Raises InvalidSettingError."""
    from coldstream.errors import InvalidSettingError

    if text is None:
        return None
    try:
        return parse_time(text, now())
    except ValueError as err:
        raise InvalidSettingError(option, f"{text[:80]!r} is not {TIME_HELP.removesuffix('.')}") from err


def duration_ms_of(option: str, text: str | None) -> int | None:
    """Read the duration that an option says, such as 30m or 7d. Raises InvalidSettingError."""
    if text is not None and text.startswith("now-"):
        text = text.removeprefix("now")  # what was typed: see cli/arguments.py
    return parse_option(option, text, lambda given: round(parse_duration(given) * 1000))
