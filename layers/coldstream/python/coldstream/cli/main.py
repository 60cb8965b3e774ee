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

from coldstream.cli import access, exits
from coldstream.cli.agent import agent
from coldstream.cli.agent_status import status
from coldstream.cli.announce import announce
from coldstream.cli.compact import compact
from coldstream.cli.inspect_file import inspect_file
from coldstream.cli.output import printable
from coldstream.cli.read import read
from coldstream.cli.replay import replay
from coldstream.cli.resolve import resolve
from coldstream.cli.streams import describe, streams
from coldstream.cli.up import up
from coldstream.errors import ColdstreamError

PROGRAM = "coldstream"


class _Commands(TyperGroup):
    """Turns what a command raises into a line on standard error and an exit code."""

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
            what = f"this command needs the package {err.name}, which is not installed"
            advice = "pip install 'coldstream[agent,consumer,local,replay]' has all of them"
            raise _failed(ctx, err, what, advice, exits.ExitCode.USAGE) from err
        except OSError as err:  # a full disk, a file that may not be read: the machine's, not ours
            raise _failed(ctx, err, str(err), None, exits.ExitCode.UNEXPECTED) from err
        except Exception as err:
            what = f"unexpected: {type(err).__name__}: {err}"
            raise _failed(ctx, err, what, "this is a bug; --debug shows where", exits.ExitCode.UNEXPECTED) from err
        return result


def _failed(ctx: typer.Context, err: Exception, what: str, advice: str | None, code: exits.ExitCode) -> typer.Exit:
    if ctx.params.get("debug"):
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
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(*, debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False) -> None:
    """Take the options of all commands; `debug` is looked up where errors are shown."""


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
