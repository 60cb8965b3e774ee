"""The question before something is deleted."""

from __future__ import annotations

import sys

import typer

from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import printable


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless `yes` answers already; end the command, without a change, if the answer is no.

    Raises InvalidSettingError if there is no terminal to ask at.
    """
    from coldstream.errors import InvalidSettingError

    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidSettingError("--yes", f"there is no terminal to ask at: {question} If so, say --yes")
    try:
        is_yes = typer.confirm(printable(question), err=True)
    except typer.Abort:
        raise KeyboardInterrupt from None  # Ctrl-C ends a command alike, wherever it is
    if not is_yes:
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(ExitCode.UNEXPECTED)
