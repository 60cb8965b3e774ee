"""From what somebody says on the command line to the fields of a job."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coldstream.errors import ColdstreamError, InvalidInputError

MAX_JSON_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class GivenTarget:
    """Where a load is to send, as options say it: one of these, and a broker."""

    stream: str | None = None
    super_stream: str | None = None
    exchange: str | None = None
    table: str | None = None
    broker: str | None = None

    def fields(self) -> dict[str, Any] | None:
        """Return the target of a job, None if none is given. Raises InvalidInputError for more than one."""
        named = [("stream", "name", self.stream), ("super_stream", "name", self.super_stream)]
        named += [("exchange", "name", self.exchange), ("table", "path", self.table)]
        given = [(kind, field, value) for kind, field, value in named if value is not None]
        if len(given) > 1:
            options = ", ".join(f"--to-{kind.replace('_', '-')}" for kind, _, _ in given)
            raise InvalidInputError("target", f"is one place, and {options} are {len(given)}")
        if not given:
            return None
        kind, field, value = given[0]
        found = {"type": kind, field: value}
        return found | {"broker": self.broker} if self.broker is not None and kind != "table" else found


def fields_of(kind: str, given: dict[str, Any], streams: Sequence[str], target: GivenTarget) -> dict[str, Any]:
    """Return the fields of a job of this kind: those that were given, under the names that the kind has for them.

    An erasure has one stream, and its start and end are offsets. Raises InvalidInputError.
    """
    fields: dict[str, Any] = {"kind": kind} | {name: value for name, value in given.items() if value is not None}
    if (found := target.fields()) is not None:
        fields["target"] = found
    elif target.broker is not None:
        fields["broker"] = target.broker
    if kind != "erase":
        return fields | ({"streams": list(streams)} if streams else {})
    if len(streams) != 1:
        raise InvalidInputError("streams", f"an erasure is in one stream, and {len(streams)} are given")
    fields["stream"] = streams[0]
    start, end = fields.pop("start", None), fields.pop("end", None)
    if start is not None or end is not None:
        fields["offsets"] = f"{start or ''}:{end or ''}"
    return fields


def read_json(source: str) -> dict[str, Any]:
    """Read the fields of a job from a file, or from standard input for `-`. Raises InvalidInputError."""
    try:
        if source == "-":
            text = sys.stdin.buffer.read(MAX_JSON_BYTES + 1)
        else:
            with open(source, "rb") as file:  # noqa: PTH123  as typed: Path would make "a" of "./a" in errors
                text = file.read(MAX_JSON_BYTES + 1)
    except OSError as err:
        raise InvalidInputError("--from-json", f"{source}: {err.strerror or err}") from err
    if len(text) > MAX_JSON_BYTES:
        raise InvalidInputError("--from-json", f"{source} has more than {MAX_JSON_BYTES} bytes")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise InvalidInputError("--from-json", f"{source} is not JSON: {err}"[:500]) from err
    if not isinstance(found, dict):
        raise InvalidInputError("--from-json", f"{source} is not a JSON object")
    return found


def in_file(err: ColdstreamError, source: str) -> ColdstreamError:
    """Return what is wrong with a field, told as one of the file: it is no option's, even if one has its name."""
    if not isinstance(err, InvalidInputError) or err.field.startswith("--"):
        return err
    return InvalidInputError("--from-json", f"{source}: {err.field}: {err.problem}")
