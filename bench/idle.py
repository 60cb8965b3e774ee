"""An agent with a thousand quiet streams: CPU, memory, and the cost of a scrape."""

from __future__ import annotations

import shutil
import statistics
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.brokers import MESSAGE, new_broker
from bench.dynamodb import Moto
from bench.harness import MB, Aim, CannotMeasureError, Cell, Section, say
from bench.usage import cpu_s, rss_bytes
from coldstream.local.environment import aws_environment
from tests.support.agent import AgentProcess
from tests.support.broker import Broker
from tests.support.epmd import HOST, free_ports

STREAMS = 1000
FEW_STREAMS = 10
SEGMENT_BYTES = 1_000_000
SCAN_S = 10
WINDOWS = 9
"""The agent looks at each stream for the first time in some of the first ones, which the median leaves out."""
SCRAPES = 10
FOLLOWS_WITHIN_S = 120
MOST_CPU_PERCENT = 2
MOST_SCRAPE_MS = 20

HOW = f"""\
An agent runs beside a real broker with {STREAMS:,} streams of one message each. At the same time another one, the
baseline, runs on copies of the directories of {FEW_STREAMS} of them. Both know every stream by name and have found
nothing to archive; nothing is published, and the agents look at every stream each {SCAN_S} s, their default. CPU is
that of the process, in per cent of one core: the median of {WINDOWS} windows of {SCAN_S} s, with the least and the
most. Memory is measured at the end. A scrape is one GET of /metrics, the median of {SCRAPES}, in turns."""


@dataclass(slots=True)
class _MeasuredAgent:
    """An agent, and its figures."""

    streams: int
    process: AgentProcess
    port: int
    known_s: float = 0.0
    cpu_percent: list[float] = field(default_factory=list)
    scrape_ms: list[float] = field(default_factory=list)
    scrape_bytes: int = 0

    def wait_known(self) -> None:
        """Wait until the agent follows every stream and knows its name."""
        began = time.monotonic()
        while self._known() < self.streams:
            if time.monotonic() - began > FOLLOWS_WITHIN_S:
                raise CannotMeasureError(f"the agent does not follow all {self.streams} streams:\n{self._log()}")
            time.sleep(0.2)
        self.known_s = time.monotonic() - began

    def scrape(self) -> None:
        """Get the metrics once."""
        began = time.perf_counter()
        with urllib.request.urlopen(f"http://{HOST}:{self.port}/metrics") as answer:
            self.scrape_bytes = len(answer.read())
        self.scrape_ms.append(1000 * (time.perf_counter() - began))

    def _known(self) -> int:
        status = self.process.status()
        streams = () if status is None else status.streams
        return sum(one.name is not None and one.state == "following" for one in streams)

    def _log(self) -> str:
        return self.process.log.read_text(encoding="utf-8")[-2000:]


def measure() -> Section:
    """Measure both agents over the same time."""
    with ExitStack() as stack:
        broker = stack.enter_context(new_broker())
        moto = stack.enter_context(Moto())
        home = Path(stack.enter_context(TemporaryDirectory(prefix="coldstream-bench-")))
        say(f"making {STREAMS:,} streams")
        _make_streams(broker)
        for source in sorted(broker.data_directory.iterdir())[:FEW_STREAMS]:
            shutil.copytree(source, home / "data" / source.name)
        settings = dict.fromkeys(("COLDSTREAM_BUCKET", "COLDSTREAM_TABLE", "COLDSTREAM_EVENT_BUS"), "bench")
        environment = {**aws_environment({}, moto.url), **settings}

        def start(streams: int, data: Path) -> _MeasuredAgent:
            (port,) = free_ports(1)
            options = ("--data", data, "--scan", f"{SCAN_S}s", "--listen", f"{HOST}:{port}")
            process = AgentProcess(environment, home / f"agent-{streams}", broker.stream_uri, *options)
            case = _MeasuredAgent(streams, stack.enter_context(process), port)
            process.wait_ready()
            say(f"waiting until the agent knows {streams:,} streams")
            case.wait_known()
            return case

        few, many = start(FEW_STREAMS, home / "data"), start(STREAMS, broker.data_directory)
        _watch([few, many])
        for _ in range(SCRAPES):
            few.scrape()
            many.scrape()
        figures = _figures(few), _figures(many)
    cpu_percent, _, scrape_ms, _ = (figure for _, figure in figures[1])
    return Section(
        title="Agent: quiet streams",
        how=HOW,
        columns=("", f"{FEW_STREAMS} streams", f"{STREAMS:,} streams", "ratio"),
        rows=tuple(_row(name, mine, theirs) for (name, mine), (_, theirs) in zip(*figures, strict=True)),
        notes=(
            *(
                f"CPU of each window, {case.streams:,} streams: {min(case.cpu_percent):.2f} to"
                f" {max(case.cpu_percent):.2f} % of a core"
                for case in (few, many)
            ),
            f"{many.known_s:.0f} s after the agent first answered it knew all {STREAMS:,} streams, its table in moto",
        ),
        aims=(
            Aim(
                f"less than {MOST_CPU_PERCENT} % of a core for {STREAMS:,} quiet streams",
                f"{cpu_percent:.2f} %",
                cpu_percent < MOST_CPU_PERCENT,
            ),
            Aim(f"a scrape in less than {MOST_SCRAPE_MS} ms", f"{scrape_ms:.1f} ms", scrape_ms < MOST_SCRAPE_MS),
        ),
    )


def _make_streams(broker: Broker) -> None:
    with broker.connect() as streams:
        for number in range(STREAMS):
            streams.create_stream(f"idle-{number:04}", max_segment_bytes=SEGMENT_BYTES)
            streams.publish(f"idle-{number:04}", [MESSAGE])


def _watch(cases: list[_MeasuredAgent]) -> None:
    """Record what the agents use, in the same windows of time."""
    for number in range(WINDOWS):
        say(f"window {number + 1} of {WINDOWS}")
        began, before = time.monotonic(), [cpu_s(case.process.pid) for case in cases]
        time.sleep(SCAN_S)
        for case, used in zip(cases, before, strict=True):
            case.cpu_percent.append(100 * (cpu_s(case.process.pid) - used) / (time.monotonic() - began))


def _figures(case: _MeasuredAgent) -> list[tuple[str, float]]:
    median: Callable[[list[float]], float] = statistics.median_low
    return [
        ("CPU, % of a core", median(case.cpu_percent)),
        ("memory, MB", rss_bytes(case.process.pid) / MB),
        ("a scrape, ms", median(case.scrape_ms)),
        ("a scrape, KB", case.scrape_bytes / 1000),
    ]


def _row(name: str, few: float, many: float) -> tuple[Cell, ...]:
    return name, few, many, many / few
