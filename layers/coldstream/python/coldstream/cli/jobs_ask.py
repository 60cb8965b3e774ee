"""Questions that make a job, for whoever says nothing on a terminal. Answers are checked one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

import typer

from coldstream.cli.jobs_choices import FormatName, KindChoice
from coldstream.terminal.output import printable

_TARGETS = ("stream", "super_stream", "exchange", "table")
_WITH_STREAMS = frozenset({"store", "load", "export"})
_WITH_WINDOW = frozenset({"load", "export"})
_TIMES = "first, an offset, or a time such as -1h or 2026-01-31T09:30:00Z"


def ask_fields() -> dict[str, Any]:
    """Ask what a job is to do; return its fields. Ctrl-C ends the command."""
    try:
        return _ask_fields()
    except typer.Abort:
        raise KeyboardInterrupt from None


def _ask_fields() -> dict[str, Any]:
    kind = _choice("Kind of job", tuple(KindChoice))
    fields: dict[str, Any] = {"kind": kind, "name": _text("Name, for people", "")}
    fields["vhost"] = _text("Virtual host", "/")
    if kind == "erase":
        fields["stream"] = _text("Stream")
        fields["offsets"] = _text("Offsets, A:B from A up to, not including, B")
        fields["reason"] = _text("Reason, for the journal")
        return fields
    question = "Streams: names or patterns with * and ?, with spaces between"
    names = _text(question) if kind in _WITH_STREAMS else _text(f"{question}; none: all", "")
    fields["streams"] = names.split()
    if kind in {"load", "store"}:
        fields |= _broker_and_target(kind)
    if kind == "export":
        fields["format"] = _choice("Format", get_args(FormatName))
        fields["destination"] = _text("Destination: a directory of the worker, or s3://BUCKET/PREFIX")
    if kind in _WITH_WINDOW:
        fields["start"] = _text(f"From: {_TIMES}", "first")
        fields["end"] = _text("To, not included; none: what is archived", "") or None
    if kind == "load":
        fields["rate"] = _number("Messages a second at most, of each stream; 0: no limit") or None
        fields["follow"] = typer.confirm("Go on with what is archived later?", default=False, err=True)
    if kind == "store":
        fields["start"] = _text(
            "From, for streams of which nothing is archived: now, first, an offset, a time", "first"
        )
    if kind in {"compact", "scrub", "retention"}:
        fields["schedule"] = _text("Schedule: every 6h, or five fields of cron; none: once", "") or None
    return fields


def _broker_and_target(kind: str) -> dict[str, Any]:
    if kind == "store":
        return {"broker": _text("Broker, by the name that workers know it by", "default")}
    target = _choice("Target", _TARGETS)
    if target == "table":
        return {"target": {"type": target, "path": _text("Path: a directory of the worker, or s3://BUCKET/PREFIX")}}
    name = _text(f"Name of the {target.replace('_', ' ')}")
    broker = _text("Broker, by the name that workers know it by", "default")
    return {"target": {"type": target, "name": name, "broker": broker}}


def _choice(question: str, choices: Sequence[str]) -> str:
    def check(answer: str) -> str:
        if answer not in choices:
            raise typer.BadParameter(f"{printable(answer[:80])!r} is none of {', '.join(choices)}")
        return answer

    found: str = _prompt(f"{question} ({', '.join(choices)})", None, check)
    return found


def _number(question: str) -> float:
    def check(answer: str) -> float:
        try:
            return float(answer)
        except ValueError as err:
            raise typer.BadParameter(f"{printable(answer[:80])!r} is no number") from err

    found: float = _prompt(question, "0", check)
    return found


def _text(question: str, default: str | None = None) -> str:
    found: str = _prompt(question, default, str.strip)
    return found


def _prompt(question: str, default: str | None, check: Callable[[str], Any]) -> Any:
    return typer.prompt(question, default=default, value_proc=check, err=True, show_default=bool(default))
