"""How every command parses its arguments, lists its options in `--help`, and ends when it fails."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from coldstream.cli.silence import report_silence_of_aws
from coldstream.cli.stopping import signals_of_a_command
from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.terminal import exits
from coldstream.terminal.extras import missing_extra
from coldstream.terminal.output import printable

PROGRAM = "coldstream"
DEBUG = "coldstream.debug"
"""The key in the context's `meta` that holds whether to show where errors come from."""

_EXTRAS = {
    "agent": "agent",
    "gateway": "gateway",
    "replay": "replay",
    "serve": "serve",
    "shards": "shards",
    "up": "local",
}
"""Commands that need more than one extra brings by itself, with the extra that brings it all."""


class Command(TyperCommand):
    """A command whose help lists options by panel, and whose errors name options as they are typed."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command. What is wrong with `streams` is wrong with --streams, to whoever typed it."""
        try:
            with report_silence_of_aws():
                return super().invoke(ctx)
        except InvalidInputError as err:
            options = {parameter.name: parameter.opts[0] for parameter in self.params}
            option = options.get(err.field, "")
            if option.startswith("--"):
                err.args = (f"{option}: {err.problem}",)
            raise

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # its public name
        """Write the arguments and options."""
        _write_options(self, ctx, formatter)


class CommandGroup(TyperGroup):
    """A group whose help lists commands and options by panel, and that turns errors into a line and an exit code."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run a command. Errors end as one line on standard error; only --debug shows a traceback."""
        try:
            with signals_of_a_command():
                result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever reads our output has enough, as `head` does. Python flushes standard output once more at exit, and
            # would complain about the closed pipe: what is left goes to nowhere instead.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(exits.ExitCode.OK) from None
        except ColdstreamError as err:
            raise _failed(ctx, err, str(err), exits.advice(err), exits.exit_code(err)) from err
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise
        except ModuleNotFoundError as err:
            command = ctx.invoked_subcommand if ctx.parent is None else ctx.info_name
            missing = missing_extra(err, _EXTRAS.get(command or ""))
            message = f"the package {err.name} is not installed" if missing is None else str(missing)
            raise _failed(ctx, err, message, None, exits.ExitCode.USAGE) from err
        except OSError as err:  # a full disk, an unreadable file: nothing is wrong with the program
            raise _failed(ctx, err, str(err), exits.advice(err), exits.ExitCode.UNEXPECTED) from err
        except Exception as err:
            message = f"unexpected: {type(err).__name__}: {err}"
            raise _failed(ctx, err, message, "this is a bug; --debug shows where", exits.ExitCode.UNEXPECTED) from err
        return result

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the options, then the commands."""
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, _ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the commands. typer itself does so only in boxes that rich draws, which take 0.15 s more."""
        width = formatter.width - max(map(len, self.commands), default=0) - 6
        rows = [(name, command.get_short_help_str(width)) for name, command in self.commands.items()]
        write_panels({"Commands": rows}, formatter)


def _write_options(command: TyperCommand | TyperGroup, ctx: typer.Context, formatter: Any) -> None:
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            default = "Arguments" if parameter.param_type_name == "argument" else "Options"
            panels.setdefault(_panel(parameter) or default, []).append(record)
    write_panels(panels, formatter)


def write_panels(panels: dict[str, list[tuple[str, str]]], formatter: Any) -> None:
    """Write sections of a help text: by title, names and what they are."""
    for title, rows in panels.items():
        with formatter.section(title):
            formatter.write_dl(rows)


def _panel(item: Any) -> str | None:
    """Return the panel that a command or an option was declared with."""
    panel = getattr(item, "rich_help_panel", None)
    return panel if isinstance(panel, str) else None  # where none was given, typer leaves a placeholder


def _failed(ctx: typer.Context, err: Exception, message: str, advice: str | None, code: exits.ExitCode) -> typer.Exit:
    if ctx.meta.get(DEBUG):
        traceback.print_exception(err)
    line = message if advice is None else f"{message} ({advice})"
    typer.echo(f"{PROGRAM}: {printable(line)}", err=True)
    return typer.Exit(code)
