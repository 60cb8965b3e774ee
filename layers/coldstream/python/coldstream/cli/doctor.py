"""`coldstream doctor`: look at everything around an archive, and say what to do next."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.agent_client import check_agent_url, fetch_agent_status
from coldstream.cli.options import Output
from coldstream.cli.stores import open_archive
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, printable, write_json, write_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coldstream.operate.diagnosis import Diagnosis


def doctor(
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Scrub a part of the archive, too: for ten minutes at most.")
    ] = False,
    stack: Annotated[
        str | None,
        typer.Option(envvar="COLDSTREAM_STACK", help="Name of the stack, for its alarms and metrics.", metavar="NAME"),
    ] = None,
    event_bus: Annotated[
        str | None,
        typer.Option(envvar="COLDSTREAM_EVENT_BUS", help="The event bus: the output EventBus.", metavar="NAME"),
    ] = None,
    upload_queue: Annotated[
        str | None,
        typer.Option(
            envvar="COLDSTREAM_UPLOAD_QUEUE_ARN", help="The queue of events: the output UploadQueueArn.", metavar="ARN"
        ),
    ] = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(
            envvar="COLDSTREAM_DEAD_LETTER_QUEUE",
            help="The dead-letter queue: the output DeadLetterQueue or DeadLetterQueueArn.",
            metavar="QUEUE",
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            envvar="COLDSTREAM_AGENT_URL",
            help="Address that an agent listens on, to ask what lags or fails; may be repeated.",
            metavar="URL",
        ),
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Look at everything around an archive: what to do next?

    It asks for settings, rights, bucket, table, events, queues, alarms, streams, upkeep and agents. Nothing is changed.
    The exit code is 1 if anything is bad. What cannot be asked is unknown, and is no failure. Example: `coldstream
    doctor --stack archive`.
    """
    from coldstream.errors import ColdstreamError
    from coldstream.operate.diagnosis import ArchivePart, Diagnosis, DiagnosisVerdict

    for url in agent or ():
        check_agent_url(url, option="--agent")
    try:
        examined = _examined(deep, stack, event_bus, upload_queue, dead_letters)
    except ColdstreamError as err:
        todo = "set it, from the outputs of the stack; `coldstream up` prints settings that work"
        examined = [Diagnosis(ArchivePart.SETTINGS, "the settings are complete", DiagnosisVerdict.BAD, str(err), todo)]
    examined += _agents(agent or ())
    if output is Format.JSON:
        for one in examined:
            write_json(one.to_json())
    else:
        rows = [(one.verdict.value, one.part.value, printable(one.what), printable(one.found)) for one in examined]
        write_table(("verdict", "part", "what", "found"), rows)
    for one in examined:
        if one.todo is not None and one.verdict is not DiagnosisVerdict.OK:
            typer.echo(printable(f"{one.verdict}: {one.part}: {one.what}: {one.todo}"), err=True)
    counts = Counter(one.verdict for one in examined)
    typer.echo(", ".join(f"{counts[verdict]} {verdict}" for verdict in DiagnosisVerdict), err=True)
    raise typer.Exit(ExitCode.UNEXPECTED if counts[DiagnosisVerdict.BAD] else ExitCode.OK)


def _agents(urls: Sequence[str]) -> Iterator[Diagnosis]:
    from coldstream.operate.agent_health import agent_health
    from coldstream.operate.diagnosis import ArchivePart, Diagnosis, DiagnosisVerdict
    from coldstream.units import now_ms

    if not urls:
        what, found = "agents archive, and keep up", "no agent is named"
        yield Diagnosis(ArchivePart.AGENTS, what, DiagnosisVerdict.UNKNOWN, found, "name each: --agent URL")
    for url in urls:
        yield from agent_health(url, partial(fetch_agent_status, url, option="--agent"), now_ms())


def _examined(
    deep: bool,  # noqa: FBT001  the option
    stack: str | None,
    event_bus: str | None,
    upload_queue: str | None,
    dead_letters: str | None,
) -> list[Diagnosis]:
    from coldstream.operate.aws_stack import AwsStack
    from coldstream.operate.doctor import Doctor, StackPlace

    archive = open_archive()
    settings, objects = archive.settings, archive.objects
    place = StackPlace(
        settings.bucket, settings.table, event_bus or None, upload_queue or None, dead_letters or None, stack or None
    )
    return list(Doctor(place, archive.table, objects, archive.keys, AwsStack(), objects.clock, deep=deep).examine())
