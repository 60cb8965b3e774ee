"""`coldstream dead-letters`: events that the upload function could not handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.confirmation import confirm
from coldstream.cli.options import DryRun, Output, Yes
from coldstream.cli.stores import open_archive
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, count_text, printable, write, write_json, write_table
from coldstream.units import format_timestamp

if TYPE_CHECKING:
    from coldstream.operate.dead_letters import DeadLetter, Diagnosis, LetterReport
    from coldstream.operate.sqs_queue import SqsQueue

_ID_SHOWN = 8
"""Characters of an id that a table shows; so many are enough to name a letter."""

Queue = Annotated[
    str,
    typer.Option(
        envvar="COLDSTREAM_DEAD_LETTER_QUEUE",
        help="URL or ARN of the dead-letter queue.",
        metavar="QUEUE",
        show_default=False,
    ),
]
Target = Annotated[
    str,
    typer.Option(
        envvar="COLDSTREAM_UPLOAD_QUEUE_ARN",
        help="URL or ARN of the upload function's queue.",
        metavar="QUEUE",
        show_default=False,
    ),
]
Ids = Annotated[
    list[str] | None,
    typer.Argument(
        help=f"Ids as `list` shows them; the first {_ID_SHOWN} characters are enough.",
        metavar="ID",
        show_default=False,
    ),
]
Id = Annotated[str, typer.Argument(help="Id, or its first characters.", metavar="ID", show_default=False)]


def list_letters(
    *,
    queue: Queue,
    limit: Annotated[
        int, typer.Option(help="Letters to look at, at most.", min=1, max=100_000, metavar="NUMBER")
    ] = 1000,
    output: Output = Format.TEXT,
) -> None:
    """List the dead letters, each with why it is one and what to do. All of them stay in the queue.

    Example: `coldstream dead-letters list`.
    """
    from coldstream.operate.dead_letters import dead_letters

    found = dead_letters(_queue(queue), _diagnosis(), limit=limit)
    if output is Format.JSON:
        for letter in found:
            write_json(_to_json(letter))
        return
    heads = ("id", "since", "vhost", "stream", "first offset", "next offset", "do", "why")
    write_table(heads, [_row(letter) for letter in found])
    if not found:
        typer.echo("there are no dead letters, or somebody else is looking at them", err=True)
    if len(found) == limit:
        typer.echo(f"there may be more than {limit}; --limit shows them", err=True)


def show_letter(id: Id, *, queue: Queue, output: Output = Format.TEXT) -> None:  # noqa: A002  as the help names it
    """Show one dead letter: its event, and why it is one. Example: `coldstream dead-letters show 4f9d2c81`."""
    from coldstream.operate.dead_letters import MAX_SEEN, dead_letters

    letter = _one(dead_letters(_queue(queue), _diagnosis(), limit=MAX_SEEN), id)
    if output is Format.JSON:
        write_json({**_to_json(letter), "body": letter.message.body})
        return
    for label, value in (
        ("id", letter.message.id),
        ("since", format_timestamp(letter.message.sent_at)),
        ("stream", letter.cause.stream),
        ("why", letter.cause.why),
        ("do", letter.cause.action),
        ("event", letter.message.body),
    ):
        write(f"{label:<8}{printable(value)}")


def redrive(
    ids: Ids = None,
    *,
    queue: Queue,
    to: Target,
    every: Annotated[bool, typer.Option("--all", help="Send back all that are worth it.")] = False,
    rate: Annotated[float, typer.Option(help="Letters a second, at most.", min=0.01, max=1000, metavar="NUMBER")] = 10,
    dry_run: DryRun = False,
    output: Output = Format.TEXT,
) -> None:
    """Send dead letters back to the upload function.

    With --all, those that would only fail again stay. Handling an event twice changes nothing, so this is safe to
    repeat. Example: `coldstream dead-letters redrive --all --dry-run`.
    """
    from coldstream.operate import dead_letters

    letters = _queue(queue)
    chosen = _chosen(ids, every=every)
    target = _queue(to, "COLDSTREAM_UPLOAD_QUEUE_ARN")
    report = dead_letters.redrive(letters, target, _diagnosis(), ids=chosen, rate=rate, dry_run=dry_run)
    _tell(report, "would be sent back" if dry_run else "sent back", output, is_dry_run=dry_run)


def discard_letters(
    ids: Ids = None,
    *,
    queue: Queue,
    every: Annotated[bool, typer.Option("--all", help="Drop all that nothing is left to do about.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Drop dead letters for good. The segments that they announced stay staged.

    With --all, those that are worth sending back stay. Example: `coldstream dead-letters discard --all --dry-run`.
    """
    from coldstream.operate import dead_letters

    letters = _queue(queue)
    chosen = _chosen(ids, every=every)
    if not dry_run:
        what = (
            "all dead letters that nothing is left to do about"
            if chosen is None
            else count_text(len(chosen), "dead letter")
        )
        confirm(f"drop {what}?", yes=yes)
    report = dead_letters.discard(letters, _diagnosis(), ids=chosen, dry_run=dry_run)
    _tell(report, "would be dropped" if dry_run else "dropped", output, is_dry_run=dry_run)


def _queue(address: str, setting: str = "COLDSTREAM_DEAD_LETTER_QUEUE") -> SqsQueue:
    from coldstream.operate.sqs_queue import SqsQueue

    return SqsQueue(address, setting=setting)


def _diagnosis() -> Diagnosis:
    from coldstream.operate.letter_cause import cause_of

    archive = open_archive()
    return lambda message: cause_of(message, archive.table, archive.objects, archive.keys)


def _chosen(ids: list[str] | None, *, every: bool) -> list[str] | None:
    """Return the ids, None for all. Raises InvalidInputError unless the caller either names letters or says all."""
    from coldstream.errors import InvalidInputError

    if every == bool(ids):
        raise InvalidInputError("--all", "either name dead letters by their ids, or say --all")
    return None if every else ids


def _one(letters: tuple[DeadLetter, ...], id: str) -> DeadLetter:  # noqa: A002  as above
    from coldstream.errors import NotFoundError

    found = next((letter for letter in letters if letter.message.id.startswith(id)), None)
    if found is None:
        raise NotFoundError(f"there is no dead letter {id!r}, or somebody else is looking at it")
    return found


def _row(letter: DeadLetter) -> tuple[object, ...]:
    cause, message = letter.cause, letter.message
    return (
        message.id[:_ID_SHOWN],
        format_timestamp(message.sent_at),
        None if cause.stream is None else cause.stream.vhost,
        None if cause.stream is None else cause.stream.name,
        cause.first_offset,
        cause.next_offset,
        cause.action,
        cause.why,
    )


def _to_json(letter: DeadLetter) -> dict[str, Any]:
    cause, message = letter.cause, letter.message
    return {
        "id": message.id,
        "sent_at": message.sent_at,
        "vhost": None if cause.stream is None else cause.stream.vhost,
        "name": None if cause.stream is None else cause.stream.name,
        "incarnation": None if cause.stream is None else cause.stream.incarnation,
        "first_offset": cause.first_offset,
        "next_offset": cause.next_offset,
        "action": cause.action,
        "why": cause.why,
    }


def _tell(report: LetterReport, what: str, output: Format, *, is_dry_run: bool) -> None:
    if output is Format.JSON:
        left = [{"id": id_, "why": why} for id_, why in report.left]
        write_json({"dry_run": is_dry_run, "done": list(report.done), "left": left, "unknown": list(report.unknown)})
    else:
        write(f"{count_text(len(report.done), 'dead letter')} {what}")
    for id_, why in report.left:
        typer.echo(printable(f"left alone: {id_[:_ID_SHOWN]}: {why}"), err=True)
    for id_ in report.unknown:
        typer.echo(printable(f"not there: {id_}"), err=True)
    if report.unknown:
        raise typer.Exit(ExitCode.NOT_FOUND)
