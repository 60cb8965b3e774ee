"""The cost of an agent to its broker: CPU seconds, and throughput of publishers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.brokers import BODY_BYTES, MESSAGE, background_aws, new_broker
from bench.harness import MB, CannotMeasureError, Cell, Section, median_run, say
from bench.usage import cpu_s
from coldstream.local.stack import EmulatedStack
from tests.support.agent import AgentProcess
from tests.support.broker import Broker
from tests.support.streams import StreamConnection

BATCH = 5_000
PACED_PER_S = 50_000
PACED_S = 3
FAST_MESSAGES = 600_000
SEGMENT_BYTES = 10_000_000
RETENTION_BYTES = 30_000_000
SETTLE_S = 60
ROUNDS = 4
NICE = 10
"""As in deploy/coldstream-agent.service."""
PACED = f"{PACED_PER_S:,} messages/s"
FAST = "as fast as it goes"
ALONE, BESIDE = "broker alone", "agent beside it"

HOW = f"""\
Messages of {BODY_BYTES} bytes are published to a new stream of a real broker, with segments of
{SEGMENT_BYTES // MB} MB and a retention of {RETENTION_BYTES // MB} MB: first {PACED_S} s at a given rate, then
{FAST_MESSAGES:,} messages as fast as they are confirmed. This is done without an agent, and with one that pins,
proves, stages and announces the segments that roll, in turns, {ROUNDS} rounds. CPU is that of the broker's and of
the agent's process, from the first message to the last confirm. Publisher, broker and agent share the machine. The
agent has the priority of its systemd unit (nice {NICE}), the emulated AWS and the functions the lowest."""


@dataclass(frozen=True, slots=True)
class _LoadRun:
    """One load, with or without an agent: messages a second, and CPU seconds."""

    rate: float
    broker_cpu_s: float
    agent_cpu_s: float = 0.0


def measure() -> Section:
    """Measure two loads, each alone and with an agent."""
    runs: dict[tuple[str, str], list[_LoadRun]] = {(load, who): [] for load in (PACED, FAST) for who in (ALONE, BESIDE)}
    with ExitStack() as stack:
        broker = stack.enter_context(new_broker())
        aws = stack.enter_context(background_aws())
        home = Path(stack.enter_context(TemporaryDirectory(prefix="coldstream-bench-")))
        streams = stack.enter_context(broker.connect())
        for number in range(ROUNDS):
            say(f"round {number + 1} of {ROUNDS}")
            for who in (ALONE, BESIDE):
                with _agent(aws, broker, home / f"agent-{number}") if who == BESIDE else _nobody() as agent:
                    for load in (PACED, FAST):
                        name = f"{number} {who} {load}".replace(" ", "-").replace("/", "-").replace(",", "")
                        runs[load, who].append(_run(broker, streams, name, load, agent))
                    if agent is not None:
                        aws.wait_idle(
                            SETTLE_S
                        )  # otherwise the other side would share the machine with its leftover work
    return Section(
        title="Agent: load on the broker",
        how=HOW,
        columns=("load", "who", "messages/s", "of alone", "broker CPU s", "of alone", "agent CPU s"),
        rows=tuple(row for load in (PACED, FAST) for row in _rows(load, runs[load, ALONE], runs[load, BESIDE])),
        notes=tuple(_spread(load, runs[load, ALONE], runs[load, BESIDE]) for load in (PACED, FAST)),
    )


@contextmanager
def _agent(aws: EmulatedStack, broker: Broker, state: Path) -> Iterator[AgentProcess]:
    options = ("--data", broker.data_directory, "--scan", "10s")
    with AgentProcess(aws.environment, state, broker.stream_uri, *options, nice=NICE) as agent:
        agent.wait_ready()
        yield agent


@contextmanager
def _nobody() -> Iterator[None]:
    yield None


def _run(broker: Broker, streams: StreamConnection, name: str, load: str, agent: AgentProcess | None) -> _LoadRun:
    """Publish a load to a new stream, and delete the stream."""
    node = broker.process_ids[0]
    streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES, max_length_bytes=RETENTION_BYTES)
    broker_before, agent_before = cpu_s(node), 0.0 if agent is None else cpu_s(agent.pid)
    began = time.monotonic()
    messages = _publish_paced(streams, name) if load == PACED else _publish_fast(streams, name)
    seconds = time.monotonic() - began
    broker_cpu = cpu_s(node) - broker_before
    agent_cpu = 0.0 if agent is None else cpu_s(agent.pid) - agent_before
    if agent is not None and load == PACED:
        _wait_archived(agent)
    streams.delete_stream(name)
    return _LoadRun(messages / seconds, broker_cpu, agent_cpu)


def _publish_paced(streams: StreamConnection, name: str) -> int:
    batches = PACED_S * PACED_PER_S // BATCH
    began = time.monotonic()
    for number in range(1, batches + 1):
        streams.publish(name, [MESSAGE] * BATCH)
        time.sleep(max(0.0, began + number * BATCH / PACED_PER_S - time.monotonic()))
    return batches * BATCH


def _publish_fast(streams: StreamConnection, name: str) -> int:
    return streams.publish(name, [MESSAGE] * FAST_MESSAGES)


def _wait_archived(agent: AgentProcess) -> None:
    """Wait until only the active segment is pinned, so that the next load begins with an idle agent."""
    deadline = time.monotonic() + SETTLE_S
    while len(list(agent.state.glob("pins/*/*.segment"))) > 1:
        if time.monotonic() > deadline:
            raise CannotMeasureError(f"the agent did not archive within {SETTLE_S} s:\n{agent.log.read_text()[-2000:]}")
        time.sleep(0.1)


def _rows(load: str, alone: list[_LoadRun], beside: list[_LoadRun]) -> Iterator[tuple[Cell, ...]]:
    rate = _median(alone, lambda run: run.rate)
    cpu = _median(alone, lambda run: run.broker_cpu_s)
    for who, runs in ((ALONE, alone), (BESIDE, beside)):
        its_rate = _median(runs, lambda run: run.rate)
        its_cpu = _median(runs, lambda run: run.broker_cpu_s)
        agent_cpu = _median(runs, lambda run: run.agent_cpu_s)
        yield load, who, its_rate, its_rate / rate, its_cpu, its_cpu / cpu, agent_cpu if who == BESIDE else ""


def _spread(load: str, alone: list[_LoadRun], beside: list[_LoadRun]) -> str:
    rates = [with_it.rate / without.rate for without, with_it in zip(alone, beside, strict=True)]
    cpus = [with_it.broker_cpu_s / without.broker_cpu_s for without, with_it in zip(alone, beside, strict=True)]
    return (
        f"{load[0].upper()}{load[1:]}, round by round: throughput {min(rates):.2f} to {max(rates):.2f} of alone, broker"
        f" CPU {min(cpus):.2f} to {max(cpus):.2f}"
    )


def _median(runs: list[_LoadRun], key: Callable[[_LoadRun], float]) -> float:
    return key(median_run(runs, key))
