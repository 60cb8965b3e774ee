"""Run everything that `sam local` needs: a Docker engine, an emulated AWS, the built template. `make sam-local`.

The upload function archives a recorded segment, so that the resolver has something to find. The script prints commands
to paste. Ctrl-C stops and removes everything.
"""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from pathlib import Path

from coldstream.errors import ColdstreamError
from tests.support.docker import DockerEngine, find_docker
from tests.support.sam import EVENTS, SAM, EmulatedAws, SamLocal, find_sam

BUILD = Path(".aws-sam/local/build")


def main() -> int:
    """Run until Ctrl-C or SIGTERM. Return 1 if something is missing or fails."""
    if find_sam() is None or not find_docker():
        print(
            "sam-local needs SAM CLI and Docker: run `make sam-local`, as root or with a running Docker engine",
            file=sys.stderr,
        )
        return 1
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        print("starting Docker, and building the functions' base image if it is missing", file=sys.stderr)
        with DockerEngine() as docker, EmulatedAws(docker.gateway) as aws:
            print("building the template", file=sys.stderr)
            sam = SamLocal(BUILD.resolve(), docker, aws.environment)
            sam.build()
            print("archiving a segment", file=sys.stderr)
            sam.invoke("UploadFunction", "upload")
            aws.stage()  # the upload has deleted the staged segment, and the printed commands send the same event
            print(commands(sam, {**docker.environment, **aws.environment}), flush=True)
            stopped.wait()
    except ColdstreamError as err:
        if stopped.is_set():  # Ctrl-C reaches SAM CLI, too, which then fails
            return 0
        print(f"sam-local: {err}", file=sys.stderr)
        return 1
    return 0


def commands(sam: SamLocal, environment: dict[str, str]) -> str:
    """Return the commands to paste into another terminal, in this directory."""
    options = shlex.join(sam.options())
    lines = ["# In another terminal, in this directory:"]
    # The functions get the endpoint from their template. SAM's own calls are not for the emulated AWS.
    variables = {name: value for name, value in environment.items() if name.startswith(("AWS_", "DOCKER_"))}
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items() if name != "AWS_ENDPOINT_URL"]
    lines += [f"export SAM_CLI_TELEMETRY=0 PATH={shlex.quote(str(SAM.parent))}:$PATH", ""]
    for function, events in EVENTS.items():
        lines += [f"sam local invoke {function} --event events/{event}.json {options}" for event in events]
    lines += [
        "",
        "# The resolver as an API, which keeps running; query it from a third terminal:",
        f"sam local start-api --warm-containers LAZY {options}",
        "curl 'http://127.0.0.1:3000/ranges?vhost=%2F&name=tracking&offset=0'",
        "",
        "# Ctrl-C here ends everything.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
