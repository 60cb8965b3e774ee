"""The command `coldstream`: its commands, grouped by task."""

from __future__ import annotations

from typing import Annotated

import typer

import coldstream
from coldstream.cli.group import DEBUG, PROGRAM
from coldstream.cli.lazy import Program
from coldstream.terminal import exits

app = typer.Typer(
    name=PROGRAM,
    cls=Program,
    help="Keep RabbitMQ Streams for good, on S3: archive them, look them up, read them back.",
    epilog=exits.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:  # noqa: FBT001  the parser calls it so
    if value:
        typer.echo(f"{PROGRAM} {coldstream.__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[  # noqa: ARG001  its callback has done everything
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options of all commands, wherever among the arguments they are."""
    context.meta[DEBUG] = debug


def main() -> None:
    """Run the command line of this process."""
    app(prog_name=PROGRAM)


if __name__ == "__main__":
    main()
