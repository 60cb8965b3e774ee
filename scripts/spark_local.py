"""Compact and replay by spark-submit, on an archive of this machine: `make spark-local`.

It starts the template's resources on an emulated AWS, archives recorded segments as many small fragments, and starts a
broker to replay to if RabbitMQ is installed. It prints each command before it runs it, to be pasted again. Ctrl-C ends
everything.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from coldstream.errors import ColdstreamError
from coldstream.local.stack import EmulatedStack
from scripts import spark_package
from tests.support.broker import Broker, BrokerError, find_rabbitmq
from tests.support.spark import find_spark

ROOT = Path(__file__).parents[1]
PORT = 8380
FRAGMENT_BYTES = 65_536
"""The smallest size that is allowed, so that there is something to merge."""


def main() -> int:
    """Run the jobs, then wait until told to stop; return 1 if something is missing or has failed."""
    if not find_spark():
        print("spark-local needs PySpark, and Java 17: run `make spark-local`", file=sys.stderr)
        return 1
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    spark_package.main(["--without-dependencies"])
    try:
        with (
            contextlib.ExitStack() as broker,
            tempfile.TemporaryDirectory(prefix="spark-local-") as tables,
            EmulatedStack(parameters={"FragmentBytes": str(FRAGMENT_BYTES)}, port=PORT) as stack,
        ):
            uri = replay_target(broker)
            given = {**stack.environment, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
            print("# In another terminal, in this directory:")
            print(*(f"export {name}={shlex.quote(value)}" for name, value in given.items()), sep="\n", flush=True)
            for command in commands(Path(tables), uri):
                print(f"\n{shlex.join(command)}", flush=True)
                if run(command, given, stopped) != 0:
                    return 0 if stopped.is_set() else 1
            print("\n# Ctrl-C here ends everything.", flush=True)
            stopped.wait()
    except (ColdstreamError, BrokerError) as err:
        print(f"spark-local: {err}", file=sys.stderr)
        return 1
    return 0


def replay_target(exit_stack: contextlib.ExitStack) -> str | None:
    """Start a broker with an empty stream, `replayed`, and return its URI; None without RabbitMQ."""
    if find_rabbitmq() is None:
        print(
            "RabbitMQ is not installed (make broker installs Debian's): replay to a broker is left out", file=sys.stderr
        )
        return None
    print("starting a broker", file=sys.stderr)
    broker = exit_stack.enter_context(Broker())
    with broker.connect() as streams:
        streams.create_stream("replayed", max_segment_bytes=1_000_000)
    return broker.stream_uri


def commands(tables: Path, broker: str | None) -> Iterator[list[str]]:
    """Yield the commands, in order."""
    coldstream, spark_submit = (str(Path(sys.executable).with_name(name)) for name in ("coldstream", "spark-submit"))
    submit = [
        spark_submit,
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
        "--conf",
        "spark.log.level=WARN",
    ]
    submit += ["--conf", "spark.driver.host=127.0.0.1", "--py-files", "build/spark/coldstream.zip"]
    compact, replay = ([*submit, f"build/spark/{job}.py"] for job in ("compact", "replay"))
    yield [coldstream, "announce", "--wait", "tests/golden"]
    yield [*compact, "--stream", "tracking", "--dry-run"]
    yield [*compact, "--stream", "tracking"]
    yield [*compact, "--stream", "tracking", "--encoding", "zstd-seekable"]
    yield [coldstream, "describe", "tracking"]
    yield [*replay, "--stream", "tracking", "--to-parquet", str(tables)]
    if broker is not None:
        yield [*replay, "--stream", "tracking", "--to-stream", "replayed", "--broker", broker]


def run(command: list[str], given: Mapping[str, str], stopped: threading.Event) -> int:
    """Run a command to its end, or until told to stop; return its exit code."""
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **given}) as process:
        while process.poll() is None:
            if stopped.wait(0.1):
                process.terminate()
                break
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
