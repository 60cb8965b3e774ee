"""`coldstream replay`: put what is archived back, into a broker or into tables."""

from __future__ import annotations

from typing import Annotated

import typer

from coldstream.cli.declared_options import with_declared_options
from coldstream.cli.options import Output
from coldstream.errors import InvalidQueryError
from coldstream.replay.arguments import ReplayArguments
from coldstream.terminal.output import Format


@with_declared_options
def replay(
    names: Annotated[list[str], typer.Argument(help="Streams to replay.", metavar="NAME", show_default=False)],
    *,
    arguments: ReplayArguments,
    output: Output = Format.TEXT,
) -> None:
    """Replay messages from the archive, each once.

    Run it again, also after it was interrupted or killed: it adds what the target lacks. A transformation has to return
    the same for the same message in each run. A table keeps in its directory _coldstream what it has. A broker knows it
    for its streams, if the source, --from, routing key and transformation are the same. Example: `coldstream replay
    orders --to-parquet ./lake/orders`.
    """
    from coldstream.cli.replayer import Replayer

    if arguments.progress is not None and len(names) > 1:
        raise InvalidQueryError("--progress", "is for one stream; replay each with a file of its own")
    Replayer(names, arguments, output).run()
