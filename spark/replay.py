"""Replay the archive by Spark: into streams of a broker again, or into tables.

    spark-submit --py-files coldstream.zip replay.py --stream orders --from 2026-01-31T00:00:00Z --to-parquet s3a://lake/orders

To a broker, each source stream is one task, so that order is kept; the broker itself knows what it has, so nothing is
sent twice, however often tasks or the job are run. Tables are written by a streaming query that ends with what is
archived: its checkpoint knows what is there, so the next run adds what is new. It prints one line of JSON, the summary,
at the end; progress goes to standard error. The same on one machine is `coldstream replay`. docs/spark.md has the
commands for EMR.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from coldstream.replay.wanted import check_start, find_request, parse_bounds
from coldstream_spark.place import Place
from coldstream_spark.summary import TELL_S
from coldstream_spark.tables import TableJob
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from coldstream.console.exits import HELP, ExitCode, exit_code, exit_code_of
from coldstream.console.output import printable, write_json
from coldstream.errors import ColdstreamError
from coldstream.replay.exchange import ExchangeTarget
from coldstream.replay.request import ReplayRequest
from coldstream.replay.stream import SendOptions, StreamTarget, replayed_to
from coldstream.replay.summary import ReplaySummary
from coldstream.replay.tables.layout import FileFormat, Partitioning
from coldstream.replay.target import AMQP_BROKER, BROKER, Asked, send
from coldstream.replay.transform import load_function
from coldstream.store.streams import choose
from coldstream.units import now_ms

_PLACE = ("table", "bucket", "endpoint")


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    options = argparse.ArgumentParser(prog="replay.py", description=__doc__.partition("\n")[0], epilog=HELP)
    add = options.add_argument
    add("--stream", action="append", required=True, metavar="NAME", help="to replay; may be repeated")
    add("--vhost", default="/", help="of the streams")
    add("--incarnation", metavar="ID", help="one life of the one stream; else the newest")
    add("--from", dest="start", default="first", metavar="SPEC", help="where to begin: first, an offset, or a time")
    add("--to", dest="end", metavar="SPEC", help="where to end, itself not included: an offset or a time")
    add("--on-gap", choices=("raise", "skip"), default="raise", help="end at a gap in the archive, or go on behind it")
    add("--transform", metavar="MODULE:FUNCTION", help="takes a message, or a row as a dict; returns one, or None")
    target = options.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-stream", metavar="NAME", help="into a stream of a broker")
    target.add_argument("--to-super-stream", metavar="NAME", help="into a super stream, by routing key")
    target.add_argument("--to-exchange", metavar="NAME", help="into an exchange, each message at least once")
    target.add_argument("--to-parquet", metavar="PATH", help="into Parquet, in a directory or below s3a://")
    target.add_argument("--to-jsonl", metavar="PATH", help="into lines of JSON, in files there")
    broker = options.add_argument_group("to a broker")
    broker.add_argument("--broker", default=os.environ.get("COLDSTREAM_BROKER", BROKER), metavar="URI")
    amqp = os.environ.get("COLDSTREAM_AMQP_BROKER", AMQP_BROKER)
    broker.add_argument("--amqp-broker", default=amqp, metavar="URI", help="of the exchange, and its vhost")
    broker.add_argument("--to-vhost", metavar="VHOST", help="of a stream; else that of the streams that are replayed")
    broker.add_argument("--routing-key", metavar="FIELD", help="where a message has it, as properties.message_id")
    broker.add_argument("--default-key", metavar="KEY", help="to an exchange: of messages without one")
    broker.add_argument("--allow-unroutable", action="store_true", help="to an exchange: what no queue is bound for")
    broker.add_argument("--publisher", metavar="NAME", help="to a stream: publish under this reference")
    broker.add_argument("--rate", type=float, help="messages a second at most, of each stream")
    table = options.add_argument_group("to a table")
    table.add_argument("--partition-by", default="stream,date", metavar="COLUMNS", help="stream, date, hour; or none")
    table.add_argument("--gzip", action="store_true", help="lines of JSON: compressed")
    table.add_argument("--checkpoint", metavar="PATH", help="else PATH/_coldstream/checkpoint")
    for name in ("table", "bucket"):
        variable = f"COLDSTREAM_{name.upper()}"
        add(f"--{name}", default=os.environ.get(variable, ""), help=f"else {variable}")
    add("--endpoint", help="of S3 and DynamoDB; else AWS_ENDPOINT_URL")
    return options


def main(arguments: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """Replay as told, in the given session or one of its own; return the exit code."""
    given = parser().parse_args(arguments)
    try:
        path = given.to_parquet or given.to_jsonl
        asked = _asked(given)
        target = None if path else asked.target()
        check_start(given.start, now_ms())
        partitioning = Partitioning.parse(given.partition_by)
        form = FileFormat.PARQUET if given.to_parquet else FileFormat.JSONL_GZIP if given.gzip else FileFormat.JSONL
        transform = _function(given.transform)
        place = Place.of({name: getattr(given, name) for name in _PLACE if getattr(given, name)}, os.environ)
        sources = _sources(given, place)
        session = spark or SparkSession.builder.appName("coldstream replay").getOrCreate()
        try:
            if transform is not None:
                _ship(session, transform)
            if target is not None:
                return _into_broker(session, sources, Task(place, target, SendOptions(given.rate, given.transform)))
            job = TableJob(sources, (given.start, given.end), path, form, partitioning, given.checkpoint, transform)
            return _into_table(session, job, place)
        finally:
            if spark is None:
                session.stop()
    except ColdstreamError as err:
        _tell(f"{err}")
        return exit_code(err)
    except StreamingQueryException as err:
        _tell(f"failed: {err.getMessage() or err}")
        return ExitCode.UNEXPECTED
    except Py4JJavaError as err:
        _tell(f"failed: {err.java_exception.getMessage()}")
        return ExitCode.UNEXPECTED
    except KeyboardInterrupt:
        _tell("interrupted; the next run goes on")
        return ExitCode.INTERRUPTED


def _asked(given: argparse.Namespace) -> Asked:
    return Asked(
        given.to_vhost or given.vhost,
        given.to_stream,
        given.to_super_stream,
        given.to_exchange,
        broker=given.broker,
        amqp_broker=given.amqp_broker,
        routing_key=given.routing_key,
        default_key=given.default_key,
        publisher=given.publisher,
        rate=given.rate,
        allow_unroutable=given.allow_unroutable,
    )


def _function(name: str | None) -> Callable[..., Any] | None:
    """Import a user's function."""
    if name is None:
        return None
    sys.path.insert(0, str(Path.cwd()))
    return load_function(name)


def _ship(spark: SparkSession, function: Callable[..., Any]) -> None:
    """Send a function's module to the executors; a package of modules is the user's to send, by --py-files."""
    module = function.__module__
    path = getattr(sys.modules[module], "__file__", None)
    if path is not None and "." not in module:
        spark.sparkContext.addPyFile(path)


def _sources(given: argparse.Namespace, place: Place) -> tuple[ReplayRequest, ...]:
    bounds = parse_bounds(given.start, given.end, now_ms())
    table, objects = place.open_table(), place.open_bucket()
    streams = choose(table, given.vhost, given.stream, incarnation=given.incarnation)
    skip = given.on_gap == "skip"
    return tuple(find_request(table, objects, stream, *bounds, skip_gaps=skip)[0] for stream in streams)


@dataclass(frozen=True, slots=True)
class Task:
    """What an executor does with a source."""

    place: Place
    target: StreamTarget | ExchangeTarget
    options: SendOptions

    def __call__(self, source: ReplayRequest) -> ReplaySummary | Failure:
        """Publish a source; to a stream nothing that another attempt, which may still be at it, has published."""
        try:
            return send(self.place.open_table(), self.place.open_bucket(), source, self.target, options=self.options)
        except ColdstreamError as err:
            return Failure(f"{source.stream}: {err}", type(err))


@dataclass(frozen=True, slots=True)
class Failure:
    """How a source failed."""

    what: str
    kind: type[ColdstreamError]


def _into_broker(spark: SparkSession, sources: Sequence[ReplayRequest], task: Task) -> int:
    began = time.monotonic()
    with _job(spark.sparkContext, lambda: _reached(sources, task)):
        results = spark.sparkContext.parallelize(sources, len(sources)).map(task).collect()
    failures = [result for result in results if isinstance(result, Failure)]
    done = [result for result in results if isinstance(result, ReplaySummary)]
    for failure in failures:
        _tell(f"failed: {failure.what}")
    write_json(
        {
            "streams": [summary.to_dict() for summary in done],
            "messages": sum(summary.messages for summary in done),
            "complete": not failures and all(summary.is_complete for summary in done),
            "seconds": round(time.monotonic() - began, 3),
            "errors": [failure.what for failure in failures],
        }
    )
    return exit_code_of(failure.kind for failure in failures)


def _into_table(spark: SparkSession, job: TableJob, place: Place) -> int:
    began = time.monotonic()
    done = job.run(spark, place, _tell)
    for problem in done.problems:
        _tell(f"not complete: {problem}")
    write_json(done.to_dict() | {"seconds": round(time.monotonic() - began, 3), "errors": done.problems})
    return ExitCode.UNEXPECTED if done.problems else ExitCode.OK


def _reached(sources: Sequence[ReplayRequest], task: Task) -> str:
    """Say how far it is, as the broker has it; nothing of an exchange, which does not know."""
    if not isinstance(task.target, StreamTarget):
        return ""
    try:
        reached = replayed_to(sources, task.target, task.options)
    except ColdstreamError as err:
        return f"; the broker does not say how far it is: {err}"
    done = sum(offset - source.start for offset, source in zip(reached, sources, strict=True))
    return f"; {done:,} of {sum(source.end - source.start for source in sources):,} offsets"


@contextmanager
def _job(context: SparkContext, reached: Callable[[], str]) -> Iterator[None]:
    """Tell how far a job is while it runs, and cancel it where the block ends in an error."""
    tag, over = f"replay-{uuid4().hex}", threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not over.wait(TELL_S):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            for stage in filter(None, stages):
                _tell(f"{stage.numCompletedTasks} of {stage.numTasks} streams done{reached()}")

    context.addJobTag(tag)
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    except BaseException:
        context.cancelJobsWithTag(tag)
        raise
    finally:
        over.set()
        watching.join()
        context.removeJobTag(tag)


def _tell(what: str) -> None:
    sys.stderr.write(printable(f"replay: {what}") + "\n")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
