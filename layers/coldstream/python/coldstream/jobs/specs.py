"""What a job is to do: a model for each kind, with the fields that a person gives.

    parse_spec({"kind": "load", "streams": ["orders"], "target": {"type": "stream", "name": "orders-again"}})

`streams` are names, or patterns with * and ?. Times may be relative, such as -1h; which time they mean is settled when
a run begins. The same models are the bodies of the HTTP API and the fields of the console's forms.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError

from coldstream.errors import InvalidInputError
from coldstream.format.amqp.sections import Properties
from coldstream.jobs.spec_fields import (
    CommonSpec,
    Duration,
    End,
    OffsetRange,
    PollInterval,
    Rate,
    ReadSize,
    Start,
    StoreStart,
    StreamName,
    StreamPatterns,
    TargetSize,
    Text,
)
from coldstream.jobs.targets import TARGET_TYPES, BrokerName, Target

MAX_SPEC_BYTES = 100_000


class JobKind(StrEnum):
    """What a job does."""

    STORE = "store"
    LOAD = "load"
    COMPACT = "compact"
    SCRUB = "scrub"
    ERASE = "erase"
    EXPORT = "export"
    RETENTION = "retention"


SomeStreams = Annotated[StreamPatterns, Field(min_length=1, description="Names of streams, or patterns with * and ?")]
AllStreams = Annotated[StreamPatterns, Field(description="Names of streams, or patterns with * and ?; none: all")]


class StoreSpec(CommonSpec):
    """Archive a broker's streams by the stream protocol, for as long as the job runs."""

    EDITABLE: ClassVar[frozenset[str]] = CommonSpec.EDITABLE | {"rate", "end", "poll_interval", "max_lag"}

    kind: Literal[JobKind.STORE]
    broker: BrokerName = "default"
    streams: SomeStreams
    start: Annotated[
        StoreStart, Field(description="Where to begin with a stream of which nothing is archived: now, first, …")
    ] = "first"
    end: Annotated[End | None, Field(description="Where to end; without it the job goes on until it is cancelled")] = (
        None
    )
    rate: Annotated[Rate | None, Field(description="Bytes a second at most")] = None
    poll_interval: Annotated[PollInterval, Field(description="How often to look for new streams")] = "30s"
    max_lag: Annotated[Duration, Field(description="How long a message may wait until it is in the archive")] = "1m"


class LoadSpec(CommonSpec):
    """Replay archived messages to a target, once, or on and on with what comes."""

    EDITABLE: ClassVar[frozenset[str]] = CommonSpec.EDITABLE | {"rate", "end", "poll_interval"}

    kind: Literal[JobKind.LOAD]
    streams: SomeStreams
    start: Annotated[Start, Field(description="The first message: first, an offset, or a time")] = "first"
    end: Annotated[End | None, Field(description="Where to end, itself not included; else what is archived")] = None
    window_by: Annotated[
        Literal["message", "chunk"],
        Field(description="Which time counts: a message's own creation time, if it has one, or its chunk's"),
    ] = "message"
    target: Target
    rate: Annotated[Rate | None, Field(description="Messages a second at most, of each stream")] = None
    follow: Annotated[bool, Field(description="Go on with what is archived later, until the job is cancelled")] = False
    poll_interval: Annotated[PollInterval, Field(description="With follow: how often to look for more")] = "30s"
    after_load: Annotated[
        Literal["keep", "delete"],
        Field(description="delete: what was loaded is removed from the archive, once all of it is at the target"),
    ] = "keep"


class CompactSpec(CommonSpec):
    """Merge small fragments, and compress them."""

    kind: Literal[JobKind.COMPACT]
    streams: AllStreams = ()
    older_than: Annotated[Duration, Field(description="Leave fragments alone that are younger")] = "1h"
    target_size: Annotated[TargetSize, Field(description="Merge up to this size, from 64KiB to 4GiB")] = "512MiB"
    encoding: Annotated[Literal["identity", "zstd-seekable"], Field(description="zstd-seekable is compressed")] = (
        "zstd-seekable"
    )
    level: Annotated[int, Field(ge=1, le=19, description="Level of compression")] = 3


class ScrubSpec(CommonSpec):
    """Check table against bucket against bytes."""

    kind: Literal[JobKind.SCRUB]
    streams: AllStreams = ()
    deep: Annotated[bool, Field(description="Read every byte")] = False
    repair: Annotated[bool, Field(description="Mend what has a repair that loses nothing")] = False
    max_requests: Annotated[int, Field(ge=100, le=10**9, description="Requests of a run")] = 1_000_000
    max_read: Annotated[ReadSize, Field(description="Bytes that a run reads at most")] = "1TiB"


_PROPERTY = "|".join(
    [
        rf"^properties\.({'|'.join(name.replace('_', '[_-]') for name in Properties._fields)})=",
        r"^(application_properties|message_annotations)\.[^=]+=",
    ]
)
"""FIELD=VALUE, as `MessageField` reads the field."""

Value = Annotated[str, Field(max_length=1000, json_schema_extra={"format": "coldstream-value"})]


class EraseSpec(CommonSpec):
    """Erase the bytes of some messages of a stream; offsets stay. All conditions must meet.

    The values of `key`, `filter_value` and `properties` are personal data. What is stored has salted digests of them in
    their place (`selection`).
    """

    kind: Literal[JobKind.ERASE]
    stream: StreamName
    incarnation: Annotated[Text | None, Field(description="Else the newest incarnation")] = None
    offsets: Annotated[OffsetRange | None, Field(description="A:B, from A up to, not including, B")] = None
    key: Annotated[Value | None, Field(description="Messages with this routing key")] = None
    filter_value: Annotated[Value | None, Field(description="Messages with this filter value")] = None
    properties: Annotated[
        tuple[Annotated[str, Field(max_length=1000, pattern=_PROPERTY)], ...],
        Field(max_length=20, description="Messages with these values: properties.user_id=alice"),
    ] = ()
    selection: Annotated[
        str | None, Field(max_length=20_000, description="What is kept in place of the values; not to be given")
    ] = None
    reason: Annotated[Text, Field(min_length=1, description="Why: a ticket, a request; it stays in the journal")]
    with_other_copies: Annotated[
        bool, Field(description="First delete other copies of the bytes: staged, in quarantine, uncommitted")
    ] = False


class ExportSpec(CommonSpec):
    """Write archived messages or whole chunks into files."""

    kind: Literal[JobKind.EXPORT]
    streams: SomeStreams
    start: Annotated[Start, Field(description="The first message: first, an offset, or a time")] = "first"
    end: Annotated[End | None, Field(description="Where to end, itself not included; else what is archived")] = None
    window_by: Literal["message", "chunk"] = "message"
    format: Annotated[
        Literal["jsonl", "parquet", "segments"],
        Field(description="segments: whole chunks, in the broker's own segment files"),
    ] = "jsonl"
    gzip: Annotated[bool, Field(description="Compress lines of JSON")] = False
    destination: Annotated[Text, Field(min_length=1, description="A directory of the worker, or s3://BUCKET/PREFIX")]

    EDITABLE: ClassVar[frozenset[str]] = CommonSpec.EDITABLE | {"end"}


class RetentionSpec(CommonSpec):
    """Remove what the policies let go, and move what they want colder."""

    kind: Literal[JobKind.RETENTION]
    streams: AllStreams = ()
    dry_run: Annotated[bool, Field(description="Tell what would go, and remove nothing")] = False


JobSpec = StoreSpec | LoadSpec | CompactSpec | ScrubSpec | EraseSpec | ExportSpec | RetentionSpec
SPECS: dict[JobKind, type[CommonSpec]] = {
    JobKind.STORE: StoreSpec,
    JobKind.LOAD: LoadSpec,
    JobKind.COMPACT: CompactSpec,
    JobKind.SCRUB: ScrubSpec,
    JobKind.ERASE: EraseSpec,
    JobKind.EXPORT: ExportSpec,
    JobKind.RETENTION: RetentionSpec,
}
_ANY: TypeAdapter[JobSpec] = TypeAdapter(Annotated[JobSpec, Field(discriminator="kind")])


def parse_spec(given: Mapping[str, Any]) -> JobSpec:
    """Read what a job is to do. Raises InvalidInputError, which names the first field that is wrong."""
    try:
        # Through JSON: strict models take a list for a tuple, and a text for a kind, only from there.
        return _ANY.validate_json(json.dumps(given))
    except ValidationError as err:
        raise _invalid(err) from err
    except (TypeError, ValueError, RecursionError) as err:
        raise InvalidInputError("job", f"is not JSON: {err}") from err


def spec_to_dict(spec: JobSpec) -> dict[str, Any]:
    """Return a job's fields for JSON, those with their defaults included; `parse_spec` reads it."""
    return spec.model_dump(mode="json")


def stored(spec: JobSpec) -> JobSpec:
    """Return a spec that can be stored, and read back. Raises InvalidInputError."""
    size = len(json.dumps(spec_to_dict(spec), separators=(",", ":")))
    if size > MAX_SPEC_BYTES:
        raise InvalidInputError("job", f"has {size} bytes, of {MAX_SPEC_BYTES} at most: say streams by patterns")
    return parse_spec(spec_to_dict(spec))


def edited(spec: JobSpec, changes: Mapping[str, Any]) -> JobSpec:
    """Return a spec with other values in some fields. Raises InvalidInputError, also for one that cannot change."""
    for name in changes:
        if name not in spec.EDITABLE or name not in type(spec).model_fields:
            can = ", ".join(sorted(spec.EDITABLE))
            raise InvalidInputError(name[:80], f"of a {spec.kind} job cannot be edited; these can: {can}")
    return stored(parse_spec({**spec_to_dict(spec), **changes}))


def is_same_work(one: JobSpec, other: JobSpec) -> bool:
    """Tell whether two specs of a job differ at most in what is of no concern to its kind, such as its name."""
    return one.model_copy(update={name: getattr(other, name) for name in CommonSpec.EDITABLE}) == other


def spec_schema() -> dict[str, Any]:
    """Return the JSON schema of every kind of job."""
    return _ANY.json_schema()


def _invalid(err: ValidationError) -> InvalidInputError:
    first = err.errors(include_url=False, include_input=False)[0]
    # The names of the kind and of the target's type are part of pydantic's path, and of no person's.
    tags = {*JobKind, *TARGET_TYPES}
    places = [str(place) for number, place in enumerate(first["loc"]) if not (number in {0, 2} and place in tags)]
    if first["type"].startswith("union_tag"):
        names = JobKind if not places else TARGET_TYPES
        return InvalidInputError(".".join([*places, "type"]) if places else "kind", f"is one of {', '.join(names)}")
    problem = str(first["msg"]).removeprefix("Value error, ").replace("Extra inputs are not permitted", "is no field")
    return InvalidInputError(".".join(places)[:200] or "job", problem[:1000])
