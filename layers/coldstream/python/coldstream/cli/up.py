"""`coldstream up`: run everything that template.yaml declares on this machine."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from coldstream.errors import InvalidInputError
from coldstream.local.function_protocol import InvocationReport
from coldstream.terminal.output import printable, write

_CHECK_EVERY_S = 0.5


def up(
    *,
    template: Annotated[
        Path | None,
        typer.Option(help="SAM template. Default: template.yaml here, else coldstream's own.", show_default=False),
    ] = None,
    port: Annotated[
        int,
        typer.Option(help="Port of the resolver on the loopback; 0 takes any free one.", min=0, max=65535),
    ] = 8380,
    parameter: Annotated[
        list[str] | None, typer.Option(help="A parameter of the template. May be repeated.", metavar="NAME=VALUE")
    ] = None,
    env_file: Annotated[
        Path | None, typer.Option(help="Write the settings to this file, too, while the stack runs.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the functions' logs.")] = False,
) -> None:
    """Run the archive on this machine, on an emulated AWS.

    It creates the resources of template.yaml on an emulated AWS, calls its functions as Lambda does, and serves the
    resolver's HTTP API, until Ctrl-C. Standard output has the settings that other commands need, as lines for a shell.
    If AWS_ENDPOINT_URL is set, the AWS emulated there is used instead of an embedded one.

    Nothing is left when it ends, the archive included. Example: `coldstream up --env-file coldstream.env`.
    """
    from coldstream.local.stack import EmulatedStack

    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is signal.SIG_DFL:  # nohup ignores SIGHUP, and means it
            signal.signal(ending, signal.default_int_handler)
    written: Path | None = None
    stack = EmulatedStack(
        template=template,
        parameters=_parameters(parameter or []),
        port=port,
        on_invocation=_report,
        log=sys.stderr if verbose else None,
        with_jobs=True,
    )
    try:
        with stack:
            exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in stack.environment.items())
            _say(f"running: {', '.join(stack.functions)}. Ctrl-C ends everything. Paste into another shell:")
            write(exports)
            # Now, since the command goes on: whoever reads the settings from a pipe would wait for them until it ends.
            sys.stdout.flush()
            if env_file is not None:
                written = _write(env_file, f"{exports}\n")
            while True:
                time.sleep(_CHECK_EVERY_S)
                for function in stack.check():
                    _say(f"{function}: its process died and was restarted")
    except KeyboardInterrupt:
        _say("ended")
    finally:
        if written is not None:
            written.unlink(missing_ok=True)


def _write(path: Path, text: str) -> Path:
    """Write a file and return it. A file that we could not write is not ours to delete at the end."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as err:
        raise InvalidInputError("--env-file", str(err)) from err
    return path


def _parameters(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not all(equals for _, equals, _ in pairs):
        raise typer.BadParameter("must be NAME=VALUE", param_hint="--parameter")
    return {name: value for name, _, value in pairs}


def _report(invocation: InvocationReport) -> None:
    outcome = f"{invocation.seconds * 1000:,.0f} ms"
    if invocation.error is not None:
        outcome = f"failed: {invocation.error} (--verbose shows its log)"
    _say(f"{time.strftime('%H:%M:%S')}  {invocation.function}  {_event_text(invocation.event)}  {outcome}")


def _event_text(event: str) -> str:
    """Name the segment that an event announces. Return other events as they are."""
    try:
        detail = json.loads(event)["detail"]
        stream, segment = detail["stream"], detail["segment"]
        return f"{stream['vhost']} {stream['name']}, offsets {segment['first_offset']} to {segment['next_offset'] - 1}"
    except (KeyError, TypeError, ValueError):
        return event


def _say(line: str) -> None:
    typer.echo(printable(line), err=True)
