"""The health of an archive: the doctor's diagnoses, the troubles of streams, agents and dead letters, in one report.

Nothing is diagnosed here that `operate` knows of: this puts it together, says what it means, and bounds what it costs,
so that a page may ask for it. What cannot be asked is told as that, with the reason, and stops nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from coldstream.browse.agents import AskAgent
from coldstream.browse.health_report import HealthFinding, HealthLevel, HealthReport
from coldstream.browse.health_streams import LookBounds, stream_findings
from coldstream.browse.meanings import meaning_of
from coldstream.browse.stream_heads import iter_heads
from coldstream.errors import ColdstreamError
from coldstream.manifest.entry import Head
from coldstream.operate.agent_health import agent_health
from coldstream.operate.dead_letters import Diagnosis as LetterDiagnosis
from coldstream.operate.dead_letters import dead_letters
from coldstream.operate.diagnosis import ArchivePart, Diagnosis, DiagnosisVerdict
from coldstream.operate.doctor import Doctor
from coldstream.operate.letter_cause import LetterAction
from coldstream.operate.message_queue import MessageQueue

MAX_STREAMS = 10_000
"""Streams whose heads one report reads: a hundred requests."""

MAX_LETTERS = 20

_LEVELS = {
    DiagnosisVerdict.BAD: HealthLevel.BAD,
    DiagnosisVerdict.WARN: HealthLevel.WARN,
    DiagnosisVerdict.UNKNOWN: HealthLevel.NOT_ASKED,
    DiagnosisVerdict.OK: HealthLevel.OK,
}
_WORST_FIRST = list(HealthLevel)
_PARTS = list(ArchivePart)


@dataclass(frozen=True, slots=True)
class HealthSources:
    """Whom to ask. `agents` are those whose addresses are known, and `letters` the dead-letter queue.

    `letter_diagnosis` says why a letter is one; without it, or the queue, letters are only counted. A look at letters
    hides them from others for a moment.
    """

    doctor: Doctor
    agents: Mapping[str, AskAgent] = field(default_factory=dict)
    letters: MessageQueue | None = None
    letter_diagnosis: LetterDiagnosis | None = None
    max_streams: int = MAX_STREAMS
    bounds: LookBounds = LookBounds()  # noqa: RUF009  frozen


def read_health(sources: HealthSources, clock: Callable[[], float] = time.monotonic) -> HealthReport:
    """Ask everything, and return what was found, the worst first.

    Cost: some twenty requests, one Query for every 500 streams and one BatchGetItem for every 100, a Query or a few for
    each of 200 streams, a GET for each agent, two requests for ten dead letters. Raises nothing that a source raises.
    """
    doctor = sources.doctor
    at = doctor.now()
    findings = [*map(_of_diagnosis, doctor.examine(streams=False)), *_agents(sources)]
    findings += _letters(sources)
    heads: list[Head] = []
    try:
        heads += islice(iter_heads(doctor.table, sources.max_streams + 1), sources.max_streams + 1)
        looked_at = heads[: sources.max_streams]
        findings += stream_findings(doctor.table, looked_at, at, sources.bounds, clock)
        if len(heads) > sources.max_streams:
            findings.append(_cut(sources.max_streams))
    except ColdstreamError as err:
        what = "streams looked at"
        meaning = meaning_of(ArchivePart.STREAMS, what)
        findings.append(
            HealthFinding(ArchivePart.STREAMS, HealthLevel.BAD, what, str(err), meaning, "coldstream doctor")
        )
    findings.sort(key=lambda one: (_WORST_FIRST.index(one.level), _PARTS.index(one.part)))
    return HealthReport(at, tuple(findings), min(len(heads), sources.max_streams), len(heads))


def _of_diagnosis(one: Diagnosis) -> HealthFinding:
    todo = None if one.verdict is DiagnosisVerdict.OK else one.todo
    return HealthFinding(one.part, _LEVELS[one.verdict], one.what, one.found, meaning_of(one.part, one.what), todo)


def _agents(sources: HealthSources) -> Iterable[HealthFinding]:
    if not sources.agents:
        what, found = "agents archive, and keep up", "no agent is named"
        meaning = meaning_of(ArchivePart.AGENTS, what)
        todo = "name each agent's address; `coldstream agent status` on a broker tells what its agent does"
        return [HealthFinding(ArchivePart.AGENTS, HealthLevel.NOT_ASKED, what, found, meaning, todo)]
    return [
        _of_diagnosis(one)
        for url, ask in sources.agents.items()
        for one in agent_health(url, ask, sources.doctor.now())
    ]


def _letters(sources: HealthSources) -> Iterator[HealthFinding]:
    if sources.letters is None or sources.letter_diagnosis is None:
        return  # the doctor counts them, or says why not
    what = "dead letter"
    meaning = meaning_of(ArchivePart.QUEUES, what)
    try:
        found = dead_letters(sources.letters, sources.letter_diagnosis, limit=MAX_LETTERS)
    except ColdstreamError as err:
        yield HealthFinding(ArchivePart.QUEUES, HealthLevel.NOT_ASKED, what, str(err), meaning)
        return
    for letter in found:
        verb = "redrive" if letter.cause.action is LetterAction.REDRIVE else "discard"
        stream = letter.cause.stream
        about = "" if stream is None else f"{stream}: "
        yield HealthFinding(
            ArchivePart.QUEUES,
            HealthLevel.BAD,
            what,
            f"{about}{letter.cause.why}",
            meaning,
            f"coldstream dead-letters {verb} {letter.message.id}",
            stream,
        )


def _cut(max_streams: int) -> HealthFinding:
    what = "streams looked at"
    found = f"there are more than {max_streams} streams: only those were looked at"
    meaning = meaning_of(ArchivePart.STREAMS, what)
    return HealthFinding(ArchivePart.STREAMS, HealthLevel.INFO, what, found, meaning, "coldstream doctor")
