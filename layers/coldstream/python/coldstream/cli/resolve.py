"""`coldstream resolve`: from an offset spec to byte ranges of objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import Incarnation, Name, Output, Resolver, Vhost
from coldstream.cli.silence import told_when_silent
from coldstream.console.exits import ExitCode
from coldstream.console.output import Format, printable, write, write_json_text, write_table
from coldstream.resolve.answer import DEFAULT_MAX_BYTES, DEFAULT_MAX_RANGES
from coldstream.units import format_timestamp, now_ms

if TYPE_CHECKING:
    from coldstream.resolve.answer import Answer

SPEC_HELP = (
    "first, last, next, an offset, or a time: 2026-01-31T09:30:00Z, 2026-01-31, yesterday, -1h, timestamp:MILLISECONDS."
)


def resolve(
    name: Name,
    spec: Annotated[str, typer.Argument(help=f"Where to begin: {SPEC_HELP}", metavar="SPEC")] = "first",
    *,
    resolver: Resolver,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    precise: Annotated[bool, typer.Option("--precise", help="Begin at the very chunk, for one more read.")] = False,
    max_bytes: Annotated[int, typer.Option(help="Bytes over all ranges; one there always is.")] = DEFAULT_MAX_BYTES,
    max_ranges: Annotated[int, typer.Option(help="Number of ranges.")] = DEFAULT_MAX_RANGES,
    cursor: Annotated[
        str | None, typer.Option(help="Go on where another answer ended, instead of at a spec.", metavar="CURSOR")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Show which objects hold a stream.

    That is the byte ranges of objects that hold it from some place on. The JSON form is the resolver's own answer,
    presigned URLs included. An answer that is nothing but a gap ends with exit code 4.
    """
    from coldstream.manifest.spec import parse_offset_spec
    from coldstream.read.client import ResolverClient
    from coldstream.resolve.answer import AnswerOutcome, Bounds, Continue, RangesQuery
    from coldstream.resolve.api import AnswerBody

    bounds = Bounds(max_ranges, max_bytes)
    start = parse_offset_spec(spec, now_ms()) if cursor is None else Continue(cursor)
    with told_when_silent(resolver), ResolverClient(resolver) as client:
        answer = client.ranges(RangesQuery(vhost, name, start, incarnation, bounds, precise))
    if output is Format.JSON:
        write_json_text(AnswerBody.of(answer).model_dump_json())
    else:
        _show(answer)
    if answer.outcome is AnswerOutcome.GAP:
        raise typer.Exit(ExitCode.GAP)


def _show(answer: Answer) -> None:
    if answer.ranges:
        write_table(
            ("first", "next", "first chunk at", "bytes", "at byte", "object"),
            [
                (
                    part.first_offset,
                    part.next_offset,
                    format_timestamp(part.first_timestamp),
                    len(part.byte_range),
                    part.byte_range.start,
                    f"s3://{part.bucket}/{part.key}",
                )
                for part in answer.ranges
            ],
        )
    if answer.gap is not None:
        reason = printable(answer.gap.reason or "not archived yet, or lost")
        write(f"gap: offsets {answer.gap.first_offset} to {answer.gap.next_offset - 1} ({reason})")
    elif answer.tail is not None:
        write(f"tail: read on from the broker at offset {answer.tail}")
    else:
        write(f"more: --cursor {answer.cursor}")
