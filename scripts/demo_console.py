"""The console on live data: a real RabbitMQ whose streams are archived while they grow, and a worker with some jobs.

    make demo-console            until Ctrl-C; prints the address
    … demo_console.py --once     until everything is there, and then it ends

The demo starts its own broker, publishes to three streams, and keeps publishing. An agent beside the broker archives
them, by the functions of template.yaml on an emulated AWS. Without RabbitMQ, it shows segments that were recorded from
a real one, and says so.
"""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import coldstream
from coldstream.archive.envelope import DETAIL_TYPE, SOURCE
from coldstream.archive.events import detail_of
from coldstream.errors import ColdstreamError
from coldstream.ingest.bus import EventBridgeBus
from coldstream.ingest.stage import find_rolled, stage
from coldstream.jobs.specs import parse_spec
from coldstream.jobs.store import JobStore
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from coldstream.store.streams import iter_streams
from coldstream.store.table import DynamoTable
from tests.support.agent import AgentProcess
from tests.support.broker import Broker, find_rabbitmq
from tests.support.golden import golden_logs
from tests.support.serve_process import NotReadyError, ServeProcess

PORT = 4480
SEGMENT_BYTES = 500_000
STREAMS = ("orders", "payments", "clicks")
FIRST_ROUNDS = 12
ROUND_MESSAGES = 2_000
PAUSE_S = 0.5
SETTLE_S = 120
_PACKAGES = Path(coldstream.__path__[0]).parent
_STATES = ("created", "paid", "packed", "shipped")


def say(text: str) -> None:
    """Report progress to whoever watches the demo."""
    print(f"  {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Show the console until Ctrl-C; with --once, until it shows all streams. Return the exit code."""
    is_once = "--once" in sys.argv[1:]
    logging.getLogger("coldstream").setLevel(logging.ERROR)
    with ExitStack() as exits:
        stack = exits.enter_context(EmulatedStack())
        os.environ.update(stack.environment)
        state = Path(exits.enter_context(TemporaryDirectory(prefix="demo-console-")))
        options: list[str | Path] = []
        if find_rabbitmq() is None:
            say(
                "RabbitMQ is not installed (`make broker` installs Debian's): showing segments recorded from a real one"
            )
            archive_recorded(stack)
        else:
            options = exits.enter_context(live_broker(stack, state))
        console = exits.enter_context(shown(stack.environment, state, options))
        print(f"demo: the console is at {console.url}", flush=True)
        if is_once:
            return 0
        say("Ctrl-C ends it")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            say("ending")
    return 0


@contextmanager
def live_broker(stack: EmulatedStack, state: Path) -> Iterator[list[str | Path]]:
    """Have a broker with an agent beside it, streams that grow, and a worker; yield options of the console."""
    with Broker(management=True) as broker, broker.connect() as streams:
        beside = ("--data", broker.data_directory, "--management", broker.management_url)
        with AgentProcess(stack.environment, state / "agent", broker.stream_uri, *beside) as agent:
            agent.wait_ready()
            for name in STREAMS:
                streams.create_stream(name, max_segment_bytes=SEGMENT_BYTES, max_length_bytes=100 * SEGMENT_BYTES)
            say(f"broker {broker.node} runs, with an agent beside it; publishing to {', '.join(STREAMS)}")
            rng = random.Random(20261127)
            for _ in range(FIRST_ROUNDS):
                for name in STREAMS:
                    streams.publish(name, messages(rng, name, ROUND_MESSAGES))
            table = DynamoTable(stack.environment["COLDSTREAM_TABLE"])
            wait_for_streams(table)
            broker_option = f"default={broker.stream_uri}"
            with working(stack.environment, state, broker_option, f"default={broker.management_url}"):
                create_jobs(JobStore(table))
                is_over = threading.Event()

                def go_on() -> None:
                    while not is_over.wait(PAUSE_S):
                        name = rng.choice(STREAMS)
                        streams.publish(name, messages(rng, name, ROUND_MESSAGES // 10))

                publishing = threading.Thread(target=go_on, name="publishing")
                publishing.start()
                try:
                    yield ["--broker", broker_option, "--agent", agent.url]
                finally:
                    is_over.set()
                    publishing.join()


def messages(rng: random.Random, stream: str, count: int) -> list[bytes | object]:
    """Make messages of a shop, as AMQP 1.0 with one data section."""
    found: list[bytes | object] = []
    for _ in range(count):
        content = {
            "stream": stream,
            "id": rng.randrange(10**9),
            "state": rng.choice(_STATES),
            "amount": round(rng.uniform(1, 900), 2),
            "customer": {"id": rng.randrange(10_000), "country": rng.choice(("DE", "FR", "PL", "SE"))},
        }
        body = json.dumps(content).encode()
        found.append(b"\x00\x53\x75\xb0" + len(body).to_bytes(4) + body)
    return found


def wait_for_streams(table: DynamoTable) -> None:
    """Wait until something of each stream is archived."""
    deadline = time.monotonic() + SETTLE_S
    while {stream.name for stream in iter_streams(table)} < set(STREAMS):
        if time.monotonic() > deadline:
            raise SystemExit(f"the streams were not archived within {SETTLE_S} s")
        time.sleep(0.2)


def create_jobs(jobs: JobStore) -> None:
    """Create jobs to look at."""
    for given in (
        {"kind": "scrub", "name": "Check the archive", "schedule": "every 10m"},
        {"kind": "compact", "name": "Merge small fragments", "older_than": "1s", "schedule": "every 10m"},
        {
            "kind": "load",
            "name": "Orders into staging",
            "streams": ["orders"],
            "target": {"type": "stream", "name": "orders-again"},
            "rate": 200,
        },
    ):
        jobs.create(parse_spec(given), by="demo")


@contextmanager
def working(environment: Mapping[str, str], state: Path, *brokers: str) -> Iterator[None]:
    """Run `coldstream worker` for the duration of the block."""
    command = [sys.executable, "-m", "coldstream.cli.main", "worker", "--state", str(state / "worker")]
    for broker in brokers:
        command += ["--broker", broker]
    with (state / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **environment, "PYTHONPATH": str(_PACKAGES)}, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait()


@contextmanager
def shown(environment: Mapping[str, str], state: Path, options: list[str | Path]) -> Iterator[ServeProcess]:
    """Run the console, at its own port if that is free."""
    for port in (PORT, 0):
        console = ServeProcess(environment, state / "console.log", *options, "--port", str(port), command="console")
        try:
            console.start()
        except NotReadyError:
            if not port:
                raise
            continue
        with console.started():
            yield console
        return


def archive_recorded(stack: EmulatedStack) -> None:
    """Archive segments that were recorded from a real broker."""
    objects = S3Objects(stack.environment["COLDSTREAM_BUCKET"])
    bus = EventBridgeBus(stack.environment["COLDSTREAM_EVENT_BUS"])
    for log in golden_logs():
        stream = StreamId(log.vhost, log.stream, incarnation(log.incarnation))
        for segment in find_rolled(log.directory):
            rolled = stage(segment, stream, objects, Keys(stack.environment.get("COLDSTREAM_PREFIX", "")))
            bus.put(source=SOURCE, detail_type=DETAIL_TYPE, detail=detail_of(rolled))
    stack.wait_idle(SETTLE_S)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ColdstreamError as err:
        sys.exit(f"demo: {err}")
