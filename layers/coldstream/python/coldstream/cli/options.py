"""Options and arguments that commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from coldstream.cli.complete import stream_names
from coldstream.console.output import Format

Name = Annotated[
    str, typer.Argument(help="Name of the stream.", metavar="NAME", show_default=False, autocompletion=stream_names)
]

Vhost = Annotated[str, typer.Option(help="Virtual host of the stream.", metavar="VHOST")]

Incarnation = Annotated[
    str | None, typer.Option(help="One life of the stream, as `streams` lists them; else the newest.", metavar="ID")
]

Resolver = Annotated[
    str,
    typer.Option(
        envvar="COLDSTREAM_RESOLVER_URL",
        help="Where the resolver's HTTP API is. Where that wants a token, COLDSTREAM_TOKEN has it, or the file that"
        " COLDSTREAM_TOKEN_FILE names.",
        metavar="URL",
        show_default=False,
    ),
]

Output = Annotated[Format, typer.Option("--output", "-o", help="Text for people, JSON for programs.")]
