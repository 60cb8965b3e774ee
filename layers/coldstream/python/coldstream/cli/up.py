"""`coldstream up`: everything that template.yaml declares, on this machine."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from coldstream.console.output import printable, write
from coldstream.errors import InvalidInputError
from coldstream.local.messages import Handled

_CHECK_EVERY_S = 0.5


def up(
    *,
    template: Annotated[
        Path | None,
        typer.Option(help="SAM template; else template.yaml here, or our own.", show_default=False),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port of the resolver on the loopback; 0 takes any free one.", min=0, max=65535)
    ] = 8380,
    parameter: Annotated[
        list[str] | None, typer.Option(help="A parameter of the template; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    env_file: Annotated[
        Path | None, typer.Option(help="Write the settings also to this file, for as long as the stack runs.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what the functions log.")] = False,
) -> None:
    """Run everything on this machine.

    That is an emulated AWS, the functions, and the resolver's HTTP API, until Ctrl-C.

    What template.yaml declares is created on the emulated AWS, and its functions are called as Lambda calls them.
    Standard output has the settings that other commands need, as lines for a shell. With AWS_ENDPOINT_URL set, the AWS
    emulated there is used instead of an own one. Nothing is left behind.
    """
    from coldstream.local.stack import LocalStack

    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is signal.SIG_DFL:  # under nohup, a hangup is ignored
            signal.signal(ending, signal.default_int_handler)
    written: Path | None = None
    stack = LocalStack(
        template=template,
        parameters=_parameters(parameter or []),
        port=port,
        on_handled=_report,
        log=sys.stderr if verbose else None,
    )
    try:
        with stack:
            exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in stack.environment.items())
            _say(f"{', '.join(stack.functions)} run; Ctrl-C ends everything. In another shell:")
            write(exports)
            sys.stdout.flush()
            if env_file is not None:
                written = _write(env_file, f"{exports}\n")
            while True:
                time.sleep(_CHECK_EVERY_S)
                for function in stack.check():
                    _say(f"{function}: its process died and was started again")
    except KeyboardInterrupt:
        _say("ended")
    finally:
        if written is not None:
            written.unlink(missing_ok=True)


def _write(path: Path, text: str) -> Path:
    """Write a file; return it, for what was not written is not ours to delete."""
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


def _report(handled: Handled) -> None:
    outcome = f"{handled.seconds * 1000:,.0f} ms"
    if handled.error is not None:
        outcome = f"failed: {handled.error} (--verbose shows what it logs)"
    _say(f"{time.strftime('%H:%M:%S')}  {handled.function}  {_event_text(handled.event)}  {outcome}")


def _event_text(event: str) -> str:
    """Name the segment that an event announces; anything else as it is."""
    try:
        detail = json.loads(event)["detail"]
        stream, segment = detail["stream"], detail["segment"]
        return f"{stream['vhost']} {stream['name']}, offsets {segment['first_offset']} to {segment['next_offset'] - 1}"
    except (KeyError, TypeError, ValueError):
        return event


def _say(line: str) -> None:
    typer.echo(printable(line), err=True)
