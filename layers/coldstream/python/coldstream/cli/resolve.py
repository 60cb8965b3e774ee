"""`coldstream resolve`: the byte ranges of objects that an offset spec resolves to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import SPEC_HELP, Incarnation, Name, Output, Resolver, Vhost
from coldstream.cli.silence import report_silence
from coldstream.errors import InvalidQueryError
from coldstream.resolve.answer import DEFAULT_MAX_BYTES, DEFAULT_MAX_RANGES
from coldstream.resolve.super_answer import SuperOrder
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, gap_text, write, write_json_text, write_table
from coldstream.units import format_timestamp, now_ms

if TYPE_CHECKING:
    from coldstream.manifest.shard_position import ShardPosition
    from coldstream.manifest.spec import AtEnd, AtTimestamp
    from coldstream.resolve.answer import Answer, Continue
    from coldstream.resolve.super_answer import PartitionAnswer, SuperAnswer


def resolve(
    name: Name,
    spec: Annotated[
        str,
        typer.Argument(help=f"Where to begin: {SPEC_HELP}; in a sharded stream, also a position.", metavar="SPEC"),
    ] = "first",
    *,
    resolver: Resolver,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    precise: Annotated[
        bool, typer.Option("--precise", help="Begin at the exact chunk, for two more requests to S3.")
    ] = False,
    max_bytes: Annotated[
        int, typer.Option(help="Total size, at most; one range is always returned.")
    ] = DEFAULT_MAX_BYTES,
    max_ranges: Annotated[int, typer.Option(help="Number of ranges, at most.")] = DEFAULT_MAX_RANGES,
    cursor: Annotated[
        str | None, typer.Option(help="Continue where another answer ended, instead of at a spec.", metavar="CURSOR")
    ] = None,
    order: Annotated[
        SuperOrder,
        typer.Option(help="Of a sharded stream: whether partitions wait for those that have a key's earlier messages."),
    ] = SuperOrder.KEY,
    output: Output = Format.TEXT,
) -> None:
    """Show which S3 objects hold a stream's data.

    The answer lists byte ranges of objects, from an offset spec on. As JSON it is the resolver's own answer, which
    includes presigned URLs. Of a sharded stream it lists some of the partitions, all in turn. If nothing but a gap is
    found, the exit code is 4. Example: `coldstream resolve orders -1h`.
    """
    from coldstream.manifest.spec import parse_offset_spec
    from coldstream.read.client import ResolverClient
    from coldstream.resolve.answer import AnswerOutcome, Bounds, Continue, RangesQuery
    from coldstream.resolve.api import AnswerBody

    bounds = Bounds(max_ranges, max_bytes)
    with report_silence(resolver), ResolverClient(resolver) as client:
        if incarnation is None and client.shard_map(vhost, name) is not None:
            from coldstream.resolve.super_answer import SuperQuery
            from coldstream.resolve.super_api import SuperAnswerBody

            query = SuperQuery(vhost, name, _super_start(spec, cursor), order, bounds, precise)
            found = client.super_ranges(query)
            if output is Format.JSON:
                write_json_text(SuperAnswerBody.of(found).model_dump_json())
            else:
                _show_super(found)
            return
        start = parse_offset_spec(spec, now_ms()) if cursor is None else Continue(cursor)
        answer = client.ranges(RangesQuery(vhost, name, start, incarnation, bounds, precise))
    if output is Format.JSON:
        write_json_text(AnswerBody.of(answer).model_dump_json())
    else:
        _show(answer)
    if answer.outcome is AnswerOutcome.GAP:
        raise typer.Exit(ExitCode.GAP)


def _super_start(spec: str, cursor: str | None) -> AtEnd | AtTimestamp | ShardPosition | Continue:
    from coldstream.manifest.shard_position import ShardPosition
    from coldstream.manifest.spec import AtOffset, parse_offset_spec
    from coldstream.resolve.answer import Continue

    if cursor is not None:
        return Continue(cursor)
    if spec.startswith("v"):
        return ShardPosition.from_text(spec)
    start = parse_offset_spec(spec, now_ms())
    if isinstance(start, AtOffset):
        raise InvalidQueryError("SPEC", "an offset means nothing in a sharded stream: give a position, such as v1,0:12")
    return start


def _show_super(answer: SuperAnswer) -> None:
    write_table(
        ("shard", "partition", "from", "next", "ranges", "bytes", "then"),
        [
            (
                one.number,
                one.name,
                one.from_offset,
                one.next_offset,
                len(one.ranges),
                sum(len(part.byte_range) for part in one.ranges),
                _then(one),
            )
            for one in answer.partitions
        ],
    )
    if answer.position is not None:
        write(f"position: {answer.position}")
    if answer.cursor is not None:
        write(f"more: --cursor {answer.cursor}")


def _then(one: PartitionAnswer) -> str:
    """Say what follows in a partition."""
    if one.gap is not None:
        return f"gap: {gap_text(one.gap.first_offset, one.gap.next_offset, one.gap.reason)}"
    if one.waits_for is not None:
        seal = "its seal" if one.waits_for.seal is None else f"offset {one.waits_for.seal}"
        return f"waits for shard {one.waits_for.parent} up to {seal}"
    return "more" if one.tail is None else "the broker"


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
        write(f"tail: the broker, or the log of a direct stream, continues at offset {answer.tail}")
    else:
        write(f"more: --cursor {answer.cursor}")
