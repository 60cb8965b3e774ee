"""The command `coldstream`: its commands, grouped by task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import coldstream
from coldstream.cli import access
from coldstream.cli.agent import agent
from coldstream.cli.agent_status import status
from coldstream.cli.announce import announce
from coldstream.cli.compact import compact
from coldstream.cli.group import DEBUG, PROGRAM, Command, CommandGroup
from coldstream.cli.inspect_file import inspect_file
from coldstream.cli.read import read
from coldstream.cli.replay import replay
from coldstream.cli.resolve import resolve
from coldstream.cli.streams import describe, streams
from coldstream.cli.up import up
from coldstream.console import exits

app = typer.Typer(
    name=PROGRAM,
    cls=CommandGroup,
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


agent_app = typer.Typer(cls=CommandGroup, rich_markup_mode=None)
agent_app.callback(invoke_without_command=True, epilog=exits.HELP)(agent)
agent_app.command("status", cls=Command, epilog=exits.HELP)(status)

access_app = typer.Typer(
    cls=CommandGroup,
    help="Manage which IAM principals may read streams.",
    epilog=exits.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
)
access_app.command("list", cls=Command, epilog=exits.HELP)(access.grants)
access_app.command("grant", cls=Command, epilog=exits.HELP)(access.grant)
access_app.command("revoke", cls=Command, epilog=exits.HELP)(access.revoke)

_COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Archive streams": {"announce": announce},
    "Look up and read": {
        "streams": streams,
        "describe": describe,
        "read": read,
        "resolve": resolve,
        "inspect": inspect_file,
    },
    "Maintain the archive": {"compact": compact, "replay": replay},
    "Try it": {"up": up},
}
for panel, commands in _COMMANDS.items():
    for name, command in commands.items():
        app.command(name, cls=Command, epilog=exits.HELP, rich_help_panel=panel)(command)
app.add_typer(agent_app, name="agent", rich_help_panel="Archive streams")
app.add_typer(access_app, name="access", rich_help_panel="Maintain the archive")


def main() -> None:
    """Run the command line of this process."""
    app(prog_name=PROGRAM)


if __name__ == "__main__":
    main()
