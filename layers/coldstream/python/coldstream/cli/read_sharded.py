"""`coldstream read` of a sharded stream, from the archive alone."""

from __future__ import annotations

import sys

import typer

from coldstream.cli.messages import ReadEnd, StreamForm
from coldstream.cli.progress import progress
from coldstream.cli.silence import report_silence
from coldstream.errors import InvalidQueryError
from coldstream.read.sharded import ShardedReader
from coldstream.terminal.output import gap_text

_ADVANCE_EVERY = 1000


def read_sharded(reader: ShardedReader, end: ReadEnd, form: StreamForm, resolver: str) -> None:
    """Write messages until the tail of the archive or the limit, and say from where to go on."""
    if end.is_bounded:
        raise InvalidQueryError("--to", "is for one stream, and this one is sharded; --limit ends it")
    with report_silence(resolver) as silence, progress("reading", end.limit, "messages", beside_data=True) as advance:
        number = 0
        for number, (stream, message) in enumerate(silence.each(reader.messages()), 1):
            sys.stdout.buffer.write(form(message, stream))
            if number % _ADVANCE_EVERY == 0:
                advance(_ADVANCE_EVERY)
            if number == end.limit:
                break
        advance(number % _ADVANCE_EVERY)
    for gap in reader.gaps:
        typer.echo(f"coldstream: passed over {gap_text(gap.first_offset, gap.next_offset, gap.reason)}", err=True)
    if reader.held:
        numbers = ", ".join(map(str, reader.held))
        typer.echo(f"coldstream: partitions that wait for others to be archived further: {numbers}", err=True)
    if reader.position is not None:
        sys.stdout.buffer.flush()
        typer.echo(f"coldstream: go on with --from {reader.position}", err=True)
