"""`coldstream resolve`: the byte ranges of objects that an offset spec resolves to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import SPEC_HELP, Incarnation, Name, Output, Resolver, Vhost
from coldstream.cli.silence import report_silence
from coldstream.console.exits import ExitCode
from coldstream.console.output import Format, gap_text, write, write_json_text, write_table
from coldstream.resolve.answer import DEFAULT_MAX_BYTES, DEFAULT_MAX_RANGES
from coldstream.units import format_timestamp, now_ms

if TYPE_CHECKING:
    from coldstream.resolve.answer import Answer


def resolve(
    name: Name,
    spec: Annotated[str, typer.Argument(help=f"Where to begin: {SPEC_HELP}", metavar="SPEC")] = "first",
    *,
    resolver: Resolver,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    precise: Annotated[
        bool, typer.Option("--precise", help="Begin at the exact chunk, for one more request to S3.")
    ] = False,
    max_bytes: Annotated[
        int, typer.Option(help="Total size, at most; one range is always returned.")
    ] = DEFAULT_MAX_BYTES,
    max_ranges: Annotated[int, typer.Option(help="Number of ranges, at most.")] = DEFAULT_MAX_RANGES,
    cursor: Annotated[
        str | None, typer.Option(help="Continue where another answer ended, instead of at a spec.", metavar="CURSOR")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Show which S3 objects hold a stream's data.

    The answer lists byte ranges of objects, from an offset spec on. As JSON it is the resolver's own answer, which
    includes presigned URLs. If nothing but a gap is found, the exit code is 4. Example: `coldstream resolve orders
    -1h`.
    """
    from coldstream.manifest.spec import parse_offset_spec
    from coldstream.read.client import ResolverClient
    from coldstream.resolve.answer import AnswerOutcome, Bounds, Continue, RangesQuery
    from coldstream.resolve.api import AnswerBody

    bounds = Bounds(max_ranges, max_bytes)
    start = parse_offset_spec(spec, now_ms()) if cursor is None else Continue(cursor)
    with report_silence(resolver), ResolverClient(resolver) as client:
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
        write(f"gap: {gap_text(answer.gap.first_offset, answer.gap.next_offset, answer.gap.reason)}")
    elif answer.tail is not None:
        write(f"tail: the broker continues at offset {answer.tail}")
    else:
        write(f"more: --cursor {answer.cursor}")
