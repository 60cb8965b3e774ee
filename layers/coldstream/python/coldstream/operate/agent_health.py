"""What an agent's status says of its health: whether it stands still, what is wrong with it, and which streams lag.

The limits are those of the alert rules for Prometheus, for whoever has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from shlex import quote

from coldstream.agent.monitor.status import AgentStatus, StreamStatus
from coldstream.errors import UnavailableError
from coldstream.operate.diagnosis import ArchivePart, Diagnosis, DiagnosisVerdict
from coldstream.units import TimestampMs, format_timestamp

STUCK_MS = 5 * 60 * 1000
"""A snapshot older than this is of an agent that stands still: it makes one every few seconds."""

LEAST_RETENTION_LEFT_S = 1800.0
LAG_MARGIN_S = 300.0
LAGS = 3
"""So many times the max-lag that is set, and the margin, an agent that keeps up is never behind."""

MAX_NAMED = 20
"""Streams that one diagnosis of a kind names."""

_Trouble = Callable[[StreamStatus], str | None]


def agent_health(url: str, ask: Callable[[], AgentStatus], now: TimestampMs) -> Iterator[Diagnosis]:
    """Yield what lags or fails of the agent at `url`, which `ask` asks; unknown if it does not answer.

    `now` is AWS's clock, or that of this machine. Cost: one GET.
    """
    what, todo = f"the agent at {url} archives, and keeps up", f"coldstream agent status --url {quote(url)}"
    try:
        status = ask()
    except UnavailableError as err:
        advice = "check that it runs, and the address of its --listen"
        yield Diagnosis(ArchivePart.AGENTS, what, DiagnosisVerdict.UNKNOWN, str(err), advice)
        return
    troubles = [*_of_agent(status, now), *_of_streams(status)]
    for verdict, found in troubles:
        yield Diagnosis(ArchivePart.AGENTS, what, verdict, f"{status.host}: {found}", todo)
    if not troubles:
        behind = sum(stream.lag_offsets > 0 for stream in status.streams)
        found = f"{status.host}: {len(status.streams)} streams, {behind} of them not archived to the end"
        yield Diagnosis(ArchivePart.AGENTS, what, DiagnosisVerdict.OK, found)


def _of_agent(status: AgentStatus, now: TimestampMs) -> Iterator[tuple[DiagnosisVerdict, str]]:
    if status.at + STUCK_MS < now:
        yield DiagnosisVerdict.BAD, f"it stands still since {format_timestamp(status.at)}"
    for problem in status.problems:
        yield DiagnosisVerdict.BAD, problem


def _of_streams(status: AgentStatus) -> Iterator[tuple[DiagnosisVerdict, str]]:
    def retention_is_near(stream: StreamStatus) -> str | None:
        left_s = stream.retention_left_s
        if left_s is None or left_s >= LEAST_RETENTION_LEFT_S:
            return None
        return f"the broker deletes in {max(0.0, left_s):.0f} s what is not archived"

    def lags(stream: StreamStatus) -> str | None:
        lag_s, max_lag_s = stream.lag_s(status.at), status.max_lag_s
        if lag_s is None or max_lag_s is None or lag_s <= LAGS * max_lag_s + LAG_MARGIN_S:
            return None
        return f"{lag_s:.0f} s behind, with a max-lag of {max_lag_s:g} s"

    def fails(stream: StreamStatus) -> str | None:
        return stream.last_failure

    kinds: tuple[tuple[DiagnosisVerdict, _Trouble], ...] = (
        (DiagnosisVerdict.BAD, retention_is_near),
        (DiagnosisVerdict.WARN, lags),
        (DiagnosisVerdict.WARN, fails),
    )
    for verdict, trouble in kinds:
        found = [(stream, said) for stream in status.streams if (said := trouble(stream)) is not None]
        for stream, said in found[:MAX_NAMED]:
            vhost, name = stream.labels
            yield verdict, f"{name} in vhost {vhost}: {said}" if vhost else f"{name}: {said}"
        if len(found) > MAX_NAMED:
            yield verdict, f"and {len(found) - MAX_NAMED} streams more of this kind"
