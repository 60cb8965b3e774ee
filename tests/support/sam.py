"""SAM CLI: the template built as for Lambda, and its functions run in Docker against an emulated AWS.

The emulated AWS (moto) listens on this machine's address on Docker's bridge, which containers reach and other machines
do not. It has what events/*.json name: the bucket `archive`, with the segment staged that events/upload.json announces.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import urlopen

from coldstream.errors import UnavailableError
from coldstream.local.deployment import table_parameters
from coldstream.local.emulator import EmbeddedAws
from coldstream.local.environment import client
from coldstream.local.template import load_document, load_template
from coldstream.manifest.entry import Encoding
from scripts.spark_package import NATIVE_MODULE
from tests.support.docker import IMAGE, PATH, DockerEngine
from tests.support.epmd import HOST, end, free_ports, spawn
from tests.support.server import ROOT

SAM = ROOT / ".venv-sam/bin/sam"
TEMPLATE = ROOT / "template.yaml"
UPKEEP = ("RetentionFunction", "SweepFunction", "GarbageFunction", "ScrubFunction", "EraseFunction")
"""The functions that a schedule calls."""

EVENTS = {
    "UploadFunction": ("upload", "lost"),
    "ResolverFunction": ("resolver", "super", "super_ranges"),
    "ApiFunction": ("api",),
    "ConsoleFunction": ("console",),
    "JobRunnerFunction": ("job",),
    **dict.fromkeys((*UPKEEP, "JobTickFunction"), ("scheduled",)),
}
"""The sample events of each function."""

BUCKET = "archive"
TABLE = "manifest"
JOBS_QUEUE = "jobs"
REGION = "eu-central-1"
ENCODING = Encoding.ZSTD_SEEKABLE
"""What the template's parameter is set to: fragments that need the layer's own zstd."""

BUILD_TIMEOUT_S = 600
INVOKE_TIMEOUT_S = 180


def find_sam() -> Path | None:
    """Return SAM CLI, or None where `make sam` has not put it there."""
    return SAM if (SAM.parents[1] / ".ready").is_file() else None


class EmulatedAws:
    """A moto server at an address of this machine, with bucket, table and the staged segment. A context manager."""

    def __init__(self, address: str) -> None:
        self._server = EmbeddedAws(address)
        self.environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._server.start()
        self.environment = {
            "AWS_ENDPOINT_URL": self._server.url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_DEFAULT_REGION": REGION,
            "COLDSTREAM_BUCKET": BUCKET,
            "COLDSTREAM_TABLE": TABLE,
        }
        sqs = client("sqs", self.environment)
        self.environment["COLDSTREAM_JOBS_QUEUE"] = sqs.create_queue(QueueName=JOBS_QUEUE)["QueueUrl"]
        self.s3 = client("s3", self.environment)
        self.s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        parameters = table_parameters(load_template(TEMPLATE).body["Resources"]["Table"])
        client("dynamodb", self.environment).create_table(TableName=TABLE, **parameters)
        self.stage()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def stage(self) -> str:
        """Put the recorded segment where events/upload.json says that it is; return the key."""
        (record,) = json.loads((ROOT / "events/upload.json").read_text())["Records"]
        detail = json.loads(record["body"])["detail"]
        name = f"{detail['segment']['first_offset']:020}.segment"
        path = ROOT / "tests/golden" / detail["stream"]["incarnation"] / name
        key: str = detail["staged"]["key"]
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
        return key


class SamLocal:
    """The template, built into `directory`, and run in `docker` with the variables of `environment`."""

    def __init__(self, directory: Path, docker: DockerEngine, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.template = directory / "local.json"
        directory.parent.mkdir(parents=True, exist_ok=True)
        self._docker = docker
        self._environment = environment

    def build(self) -> None:
        """Build functions and layer, and write beside them a template whose functions have the variables to run here.

        SAM CLI sets only what the template declares, which on AWS needs no endpoint. Takes some 20 s, at first.
        """
        options = ["--build-dir", str(self.directory), "--cached", "--cache-dir", f"{self.directory}.cache"]
        done = self.run("build", "--template", str(TEMPLATE), *options, timeout_s=BUILD_TIMEOUT_S)
        if done.returncode:
            raise UnavailableError(f"sam build failed:\n{done.stderr[-4000:]}")
        document = load_document(self.directory / "template.yaml")
        endpoint = {"AWS_ENDPOINT_URL": self._environment["AWS_ENDPOINT_URL"]}
        for name in EVENTS:
            variables = (
                document["Resources"][name]["Properties"].setdefault("Environment", {}).setdefault("Variables", {})
            )
            ours = {key: value for key, value in self._environment.items() if key.startswith("COLDSTREAM_")}
            variables.update(endpoint, **ours)
        # SAM CLI serves every API of a template at one port, and this one's default route would be the resolver's.
        del document["Resources"]["ConsoleFunction"]["Properties"]["Events"]
        shared = document["Globals"]["Function"]["Environment"]["Variables"]
        shared.update({"COLDSTREAM_BUCKET": BUCKET, "COLDSTREAM_TABLE": TABLE, "COLDSTREAM_PREFIX": ""})
        self.template.write_text(json.dumps(document))

    @property
    def native_module(self) -> Path:
        """Where the layer has the native module, if `make layer-native` has built it."""
        return self.directory / "Layer/python" / NATIVE_MODULE

    def without_native(self, directory: Path) -> SamLocal:
        """Return a copy of the build, whose layer goes without the native module."""
        shutil.copytree(self.directory, directory)
        other = SamLocal(directory, self._docker, self._environment)
        other.native_module.unlink(missing_ok=True)
        return other

    def invoke(self, function: str, event: str | Path) -> Any:
        """Call a function in a new container, with a sample event or one of a file; return what it answers.

        Raises UnavailableError.
        """
        path = ROOT / f"events/{event}.json" if isinstance(event, str) else event
        options = ["--event", str(path), *self.options()]
        done = self.run("local", "invoke", function, *options, timeout_s=INVOKE_TIMEOUT_S)
        if done.returncode:
            raise UnavailableError(f"sam local invoke {function} failed:\n{done.stderr[-4000:]}")
        return json.loads(done.stdout)

    def python(self, program: str) -> str:
        """Run a program in the functions' image with the built layer; return what it prints."""
        layer = f"{self.directory}/Layer/python:/opt/python:ro"
        command = ["docker", "run", "--rm", "--entrypoint", "python3", "--env", "PYTHONPATH=/opt/python"]
        done = subprocess.run(
            [*command, "--volume", layer, IMAGE, "-c", program],
            env={"PATH": PATH, **self._docker.environment},
            capture_output=True,
            text=True,
            timeout=INVOKE_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise UnavailableError(f"the functions' image failed:\n{done.stderr[-4000:]}")
        return done.stdout

    @contextmanager
    def api(self) -> Iterator[str]:
        """Serve the resolver as `sam local start-api` does, in a container that stays; yield its URL."""
        (port,) = free_ports(1)
        url = f"http://{HOST}:{port}"
        command = [str(SAM), "local", "start-api", "--host", HOST, "--port", str(port), "--warm-containers", "LAZY"]
        process = spawn([*command, *self.options()], environment=self._own(), directory=self.directory)
        try:
            deadline = time.monotonic() + INVOKE_TIMEOUT_S
            while not _answers(f"{url}/openapi.json"):
                if process.poll() is not None or time.monotonic() > deadline:
                    output = (self.directory / "output").read_text(errors="replace")
                    raise UnavailableError(f"sam local start-api did not start:\n{output[-4000:]}")
                time.sleep(0.2)
            yield url
        finally:
            end(process, 30)

    def options(self) -> list[str]:
        """Return the options of `sam local` that say what to run, and on what."""
        options = ["--template", str(self.template), "--skip-pull-image", "--invoke-image", IMAGE, "--region", REGION]
        return [*options, "--parameter-overrides", f"Encoding={ENCODING}"]

    def run(self, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run SAM CLI."""
        return subprocess.run(
            [str(SAM), *arguments],
            env=self._own(),
            cwd=self.directory.parent,  # where it leaves an .aws-sam of its own
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def _own(self) -> dict[str, str]:
        return {
            "PATH": f"{SAM.parent}:{PATH}",
            "HOME": str(self.directory.parent),  # of its settings
            "TMPDIR": str(self.directory.parent),
            "LANG": "C.UTF-8",
            "SAM_CLI_TELEMETRY": "0",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            **{key: value for key, value in self._environment.items() if key in _OF_SAM},
            **self._docker.environment,
        }


_OF_SAM = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=INVOKE_TIMEOUT_S):
            return True
    except HTTPError as err:
        err.close()
        return True
    except OSError:
        return False
