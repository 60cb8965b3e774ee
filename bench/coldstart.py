"""Cold starts: the time that a function's process needs to import its handler, and to give its first answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import urlencode, urlsplit

import boto3

from bench.archive import archive
from bench.aws import BUCKET, Event, function_environment, sdk_environment
from bench.dynamodb import Moto
from bench.harness import MB, ROOT, Aim, CannotMeasureError, Cell, Section, Stopwatch, environment, say
from bench.load import FIRST_TIMESTAMP, make_segment, sqs_event, stream
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import stage
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects

RUNS = 15
AIMS = {"resolver": 0.3, "upload": 0.8}
SEGMENT_BYTES = MB

HOW = f"""\
Each run is a new interpreter, whose own start does not count, with byte code and files in the machine's caches. One
figure is the import of the handler; the other includes an invocation after it. The resolver answers
`events/resolver.json` for another stream; the upload function archives a segment of {SEGMENT_BYTES // MB} MB. AWS
is moto behind a relay: the time from a request's arrival there to its answer is subtracted. There are {RUNS} runs
of each, in turns; the figures are those of the fastest. CPU includes what the process spends on its requests to AWS,
and depends less on what else the machine does."""

PROGRAM = """
import time
began, cpu_began = time.perf_counter(), time.process_time()
from app import lambda_handler
imported, cpu_imported = time.perf_counter(), time.process_time()
import json, sys, types
event = json.load(sys.stdin)
context = types.SimpleNamespace(
    function_name="bench", memory_limit_in_mb=512, invoked_function_arn="arn", aws_request_id="1",
    get_remaining_time_in_millis=lambda: 60_000,
)
called, cpu_called = time.perf_counter(), time.process_time()
answer = lambda_handler(event, context)
seconds = [imported - began, time.perf_counter() - called]
cpu_s = [cpu_imported - cpu_began, time.process_time() - cpu_called]
print(json.dumps([*seconds, *cpu_s, answer]))
"""

BASELINE = """
import time
began, cpu_began = time.perf_counter(), time.process_time()
import boto3
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
APIGatewayHttpResolver(enable_validation=True)
print(time.perf_counter() - began, time.process_time() - cpu_began)
"""


def measure() -> Section:
    """Measure both functions, and the baseline."""
    runs = dict[str, list[Run]](resolver=[], upload=[])
    with Moto() as moto, Relay(moto.url) as relay, tempfile.TemporaryDirectory() as directory:
        sdk = sdk_environment(s3_url=relay.url, dynamodb_url=relay.url)
        with environment(sdk):
            boto3.session.Session().client("s3").create_bucket(Bucket=BUCKET)
        segment = make_segment(Path(directory), size_bytes=SEGMENT_BYTES, message_bytes=(200, 4000))
        archive([segment], stream(0), sdk, moto.table)
        _baseline()  # the first run of each warms the caches and does not count
        for name, event in _events(segment, 1, sdk):
            _run(name, event, sdk, moto.table, relay)
        say(f"starting {RUNS} times")
        base = []
        for number in range(RUNS):
            base.append(_baseline())
            for name, event in _events(segment, 2 + number, sdk):
                runs[name].append(_run(name, event, sdk, moto.table, relay))
    return _section(base, runs)


@dataclass(frozen=True, slots=True)
class Run:
    """One cold start: seconds of the import, and up to the first answer without AWS's own time; and CPU seconds."""

    import_s: float
    first_answer_s: float
    import_cpu_s: float
    first_answer_cpu_s: float


class Relay(ThreadingHTTPServer):
    """A proxy at `url`, which sums up the `seconds` that the server behind it takes to answer."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Relayed)
        self.upstream = urlsplit(upstream).netloc
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.seconds = 0.0
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Relayed(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Relay

    def _relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with Stopwatch() as stopwatch, closing(HTTPConnection(self.server.upstream)) as upstream:
            upstream.request(self.command, self.path, body, dict(self.headers.items()))
            answer = upstream.getresponse()
            content = answer.read()
        self.server.seconds += stopwatch.seconds
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"connection", "content-length", "transfer-encoding"}:
                self.send_header(name, value)
        length = answer.headers["Content-Length"] if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _relay  # noqa: N815  http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name in the base class
        pass


def _events(segment: SegmentSlice, number: int, sdk: Mapping[str, str]) -> Iterator[tuple[str, Event]]:
    """Yield an event for each function: a query of the archived stream, and the segment staged for another stream."""
    event = json.loads((ROOT / "events" / "resolver.json").read_text(encoding="utf-8"))
    query = {"vhost": stream(0).vhost, "name": stream(0).name, "timestamp": str(FIRST_TIMESTAMP)}
    yield "resolver", event | {"rawQueryString": urlencode(query), "queryStringParameters": query}
    with environment(sdk):
        yield "upload", sqs_event(stage(segment, stream(number), S3Objects(BUCKET), Keys()))


def _baseline() -> Run:
    seconds, cpu_s = map(float, _python(BASELINE, {}, {}).split())
    return Run(seconds, seconds, cpu_s, cpu_s)


def _run(name: str, event: Event, sdk: Mapping[str, str], table: str, relay: Relay) -> Run:
    before = relay.seconds
    printed = _python(PROGRAM, event, {**sdk, **function_environment(name, table=table)})
    import_s, answer_s, import_cpu_s, answer_cpu_s, answer = json.loads(printed.splitlines()[-1])
    if answer != {"batchItemFailures": []} and answer.get("statusCode") != HTTPStatus.OK:
        raise CannotMeasureError(f"the {name} function's answer: {answer}")
    answer_s -= relay.seconds - before
    return Run(import_s, import_s + answer_s, import_cpu_s, import_cpu_s + answer_cpu_s)


def _python(program: str, event: Event, variables: Mapping[str, str]) -> str:
    """Run a program with only these variables, as on Lambda, and return what it prints."""
    process = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(event),
        env={"PATH": os.defpath, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise CannotMeasureError(process.stderr[-4000:])
    return process.stdout


def _section(base: Sequence[Run], runs: Mapping[str, Sequence[Run]]) -> Section:
    base_s, base_cpu_s = _fastest(base, "import_s"), _fastest(base, "import_cpu_s")
    rows: list[tuple[Cell, ...]] = [
        ("boto3, and Powertools' resolver with validation", base_s * 1000, 1.0, "", "", base_cpu_s * 1000, "", 1.0)
    ]
    ratios = {}
    for name, found in runs.items():
        import_s, first_s = _fastest(found, "import_s"), _fastest(found, "first_answer_s")
        import_cpu_s, first_cpu_s = _fastest(found, "import_cpu_s"), _fastest(found, "first_answer_cpu_s")
        ratios[name] = first_s / base_s, first_cpu_s / base_cpu_s
        rows.append(
            (
                f"{name} function",
                import_s * 1000,
                import_s / base_s,
                first_s * 1000,
                first_s / base_s,
                import_cpu_s * 1000,
                first_cpu_s * 1000,
                first_cpu_s / base_cpu_s,
            )
        )
    return Section(
        title="Cold starts",
        how=HOW,
        columns=(
            "what",
            "import, ms",
            "ratio",
            "import and first answer, ms",
            "ratio",
            "import, CPU ms",
            "import and first answer, CPU ms",
            "ratio",
        ),
        rows=tuple(rows),
        aims=tuple(
            Aim(
                f"the {name} function's import, with its first answer, in under {AIMS[name]} of the first line",
                f"{ratio:.2f}, of CPU {cpu_ratio:.2f}",
                ratio < AIMS[name],
            )
            for name, (ratio, cpu_ratio) in ratios.items()
        ),
    )


def _fastest(runs: Sequence[Run], figure: str) -> float:
    return min(float(getattr(run, figure)) for run in runs)
