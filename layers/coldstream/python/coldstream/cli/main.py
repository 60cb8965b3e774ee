"""The command `coldstream`: its commands, and what becomes of their errors.

Data goes to standard output, everything else to standard error. Modules of commands import what is heavy inside the
command, so that `coldstream --help` is quick.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import coldstream
from coldstream.cli import access
from coldstream.cli.agent import agent
from coldstream.cli.agent_status import status
from coldstream.cli.announce import announce
from coldstream.cli.arguments import arranged
from coldstream.cli.compact import compact
from coldstream.cli.inspect_file import inspect_file
from coldstream.cli.read import read
from coldstream.cli.replay import replay
from coldstream.cli.resolve import resolve
from coldstream.cli.streams import describe, streams
from coldstream.cli.up import up
from coldstream.console import exits
from coldstream.console.extras import missing_extra
from coldstream.console.output import printable
from coldstream.errors import ColdstreamError

PROGRAM = "coldstream"

_DEBUG = "coldstream.debug"
_EXTRAS = {"agent": "agent", "replay": "replay", "up": "local"}
"""The extra that brings all that a command needs, where that is more than a module of it."""


class _Commands(TyperGroup):
    """Turns what a command raises into a line on standard error and an exit code."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # its public name
        if ctx.parent is None:
            args = arranged(args, self.commands, self._options_of_commands())
        return super().parse_args(ctx, args)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # typer.Context is its public name
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Who reads our output has enough. Nothing may be flushed into the closed pipe at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(exits.ExitCode.OK) from None
        except ColdstreamError as err:
            raise _failed(ctx, err, str(err), exits.advice(err), exits.exit_code(err)) from err
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise
        except ModuleNotFoundError as err:
            command = ctx.invoked_subcommand if ctx.parent is None else ctx.info_name
            missing = missing_extra(err, _EXTRAS.get(command or ""))
            what = f"the package {err.name} is not installed" if missing is None else str(missing)
            raise _failed(ctx, err, what, None, exits.ExitCode.USAGE) from err
        except OSError as err:  # a full disk, a file that may not be read: the machine's, not ours
            raise _failed(ctx, err, str(err), exits.advice(err), exits.ExitCode.UNEXPECTED) from err
        except Exception as err:
            what = f"unexpected: {type(err).__name__}: {err}"
            raise _failed(ctx, err, what, "this is a bug; --debug shows where", exits.ExitCode.UNEXPECTED) from err
        return result

    def _options_of_commands(self) -> dict[str, bool]:
        """Return the options of all commands but our own, and whether they take a value."""
        own = {name for parameter in self.params for name in parameter.opts}
        options = [option for command in self.commands.values() for option in command.params]
        return {
            name: not getattr(option, "is_flag", True) for option in options for name in option.opts if name not in own
        }


def _failed(ctx: typer.Context, err: Exception, what: str, advice: str | None, code: exits.ExitCode) -> typer.Exit:
    if ctx.meta.get(_DEBUG):
        traceback.print_exception(err)
    line = what if advice is None else f"{what} ({advice})"
    typer.echo(f"{PROGRAM}: {printable(line)}", err=True)
    return typer.Exit(code)


app = typer.Typer(
    name=PROGRAM,
    cls=_Commands,
    help="Bottomless retention on S3 for RabbitMQ Streams: archive what a broker has, look it up, read it back.",
    epilog=exits.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(value: bool) -> None:  # noqa: FBT001  as the parser calls it
    if value:
        typer.echo(f"{PROGRAM} {coldstream.__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
    version: Annotated[  # noqa: ARG001  it has done all there is to do
        bool, typer.Option("--version", help="Show the version, and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options of all commands, wherever among the arguments they are."""
    context.meta[_DEBUG] = debug


for command in (up, announce, streams, describe, resolve, read, compact, replay):
    app.command(epilog=exits.HELP)(command)
app.command("inspect", epilog=exits.HELP)(inspect_file)

agent_app = typer.Typer(cls=_Commands, rich_markup_mode=None)
agent_app.callback(invoke_without_command=True, epilog=exits.HELP)(agent)
agent_app.command("status", epilog=exits.HELP)(status)
app.add_typer(agent_app, name="agent")


access_app = typer.Typer(
    cls=_Commands, no_args_is_help=True, rich_markup_mode=None, help="Which principals of IAM may read which streams."
)
access_app.command("list", epilog=exits.HELP)(access.grants)
access_app.command("grant", epilog=exits.HELP)(access.grant)
access_app.command("revoke", epilog=exits.HELP)(access.revoke)
app.add_typer(access_app, name="access")


def main() -> None:
    """Run the command line of this process."""
    app(prog_name=PROGRAM)


if __name__ == "__main__":
    main()
