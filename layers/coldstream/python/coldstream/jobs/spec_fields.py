"""The fields that kinds of jobs share: names, times, durations and sizes as people write them, checked when read."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from coldstream.errors import ColdstreamError
from coldstream.jobs.schedule import Schedule
from coldstream.manifest.groups import MAX_TARGET_BYTES, MIN_TARGET_BYTES
from coldstream.manifest.spec import AtEnd, parse_offset_spec
from coldstream.units import (
    MAX_OFFSET,
    MIB,
    Offset,
    TimestampMs,
    format_timestamp,
    is_relative,
    parse_duration,
    parse_size,
    parse_time,
)

_ANY_NOW = TimestampMs(0)
"""What relative times are checked against. Which one they mean is settled when a run begins."""

LEAST_POLL_S = 1
MAX_NAMES = 1000
MAX_TEXT = 1000


def _duration(text: str) -> str:
    parse_duration(text)
    return text


def _poll(text: str) -> str:
    if parse_duration(text) < LEAST_POLL_S:
        raise ValueError(f"{text!r} is less than {LEAST_POLL_S}s")
    return text


def _target_size(text: str) -> str:
    if not MIN_TARGET_BYTES <= parse_size(text) <= MAX_TARGET_BYTES:
        raise ValueError(f"{text!r} is not from 64KiB to 4GiB")
    return text


def _read_size(text: str) -> str:
    if parse_size(text) < MIB:
        raise ValueError(f"{text!r} is less than 1MiB, and no run would ever get on")
    return text


def offset_range(text: str) -> tuple[Offset, Offset | None]:
    """Return the offsets of A:B, from A up to, not including, B; without B they have no end. Raises ValueError."""
    first, _, following = text.partition(":")
    bounds = int(first or 0), int(following) if following else None
    if bounds[0] > MAX_OFFSET or (bounds[1] is not None and not bounds[0] < bounds[1] <= MAX_OFFSET + 1):
        raise ValueError(f"{text!r}: no offset is in it")
    return Offset(bounds[0]), None if bounds[1] is None else Offset(bounds[1])


def _offset_range(text: str) -> str:
    offset_range(text)
    return text


def _start(text: str) -> str:
    return _checked(text, ends=True)


def _end(text: str) -> str:
    return _checked(text, ends=False)


def _checked(text: str, *, ends: bool) -> str:
    try:
        spec = parse_offset_spec(text, _ANY_NOW)
    except ColdstreamError as err:
        raise ValueError(str(err).removeprefix("offset spec: ")) from err
    if isinstance(spec, AtEnd) and not ends:
        raise ValueError(f"{text!r} is neither an offset nor a time")
    return text.strip()


def _store_start(text: str) -> str:
    return text if text == "now" else _start(text)


def _schedule(text: str) -> str:
    try:
        return Schedule.parse(text).text
    except ColdstreamError as err:
        raise ValueError(str(err).removeprefix("schedule: ")) from err


def _text(text: str) -> str:
    # Surrogates cannot be written, and NUL and other control characters would hide what a person reads.
    if not text.isprintable():
        raise ValueError("has characters that cannot be shown")
    return text


def _format(name: str) -> dict[str, Any]:
    """Return what a schema says of a text whose form it cannot describe: a name, for who makes such texts."""
    return {"format": f"coldstream-{name}"}


Text = Annotated[str, Field(max_length=MAX_TEXT, json_schema_extra=_format("text")), AfterValidator(_text)]
ShortName = Annotated[
    str, Field(min_length=1, max_length=255, json_schema_extra=_format("text")), AfterValidator(_text)
]
StreamName = Annotated[str, Field(min_length=1, max_length=255, json_schema_extra=_format("name"))]
"""Any text, as brokers take it; what is not text is refused where a stream is looked up."""
Duration = Annotated[str, Field(max_length=32, json_schema_extra=_format("duration")), AfterValidator(_duration)]
PollInterval = Annotated[str, Field(max_length=32, json_schema_extra=_format("interval")), AfterValidator(_poll)]
TargetSize = Annotated[
    str, Field(max_length=32, json_schema_extra=_format("target-size")), AfterValidator(_target_size)
]
ReadSize = Annotated[str, Field(max_length=32, json_schema_extra=_format("read-size")), AfterValidator(_read_size)]
OffsetRange = Annotated[
    str,
    Field(pattern=r"^[0-9]{0,20}:[0-9]{0,20}$", json_schema_extra=_format("offsets")),
    AfterValidator(_offset_range),
]
Start = Annotated[str, Field(max_length=80, json_schema_extra=_format("start")), AfterValidator(_start)]
End = Annotated[str, Field(max_length=80, json_schema_extra=_format("end")), AfterValidator(_end)]
StoreStart = Annotated[
    str, Field(max_length=80, json_schema_extra=_format("store-start")), AfterValidator(_store_start)
]
ScheduleText = Annotated[str, Field(max_length=200, json_schema_extra=_format("schedule")), AfterValidator(_schedule)]
Rate = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
StreamPatterns = Annotated[tuple[StreamName, ...], Field(max_length=MAX_NAMES)]


class SpecModel(BaseModel):
    """Base of what a job is made of: immutable, and a field that it does not have is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)


class CommonSpec(SpecModel):
    """What every kind of job has.

    `runner` says who runs it; `auto` leaves that to its size. With a `schedule` it runs again and again. A failed run
    is tried `max_attempts` times in a row without progress. What a run skips fails it, unless `allow_skipped`.
    """

    EDITABLE: ClassVar[frozenset[str]] = frozenset({"name", "schedule", "max_attempts", "allow_skipped"})

    name: Annotated[Text, Field(description="What people call the job")] = ""
    vhost: Annotated[StreamName, Field(description="Virtual host of the streams")] = "/"
    runner: Annotated[
        Literal["auto", "worker", "lambda", "emr"], Field(description="Who runs it; auto: chosen by size")
    ] = "auto"
    schedule: Annotated[
        ScheduleText | None, Field(description="Run again: `every 6h`, or five fields of cron, in UTC")
    ] = None
    max_attempts: Annotated[
        int, Field(ge=1, le=100, description="Attempts in a row without progress, after which the job fails")
    ] = 5
    allow_skipped: Annotated[
        bool, Field(description="Succeed although something was skipped; it is counted and named in any case")
    ] = False


def fixed_time(text: str, began: TimestampMs) -> str:
    """Return a time that depends on the moment at which it is read as the one that it was when the run began."""
    return format_timestamp(parse_time(text, began)) if is_relative(text) else text
