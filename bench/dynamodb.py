"""DynamoDB for measurements: AWS's own emulator, whose speed does not depend on the number of items, or moto."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from bench.harness import LAYER, ROOT, CannotMeasureError, say
from bench.template import table_properties
from coldstream.errors import UnavailableError
from coldstream.local.child_process import ChildProcess
from coldstream.local.environment import aws_environment, client
from tests.support.dynamodb_local import DynamoDBLocal, find_dynamodb_local

HEAP = "2g"
"""Java's heap. The items lie outside of it, about 2.5 KB each with their copy in the index by time."""


@contextmanager
def any_dynamodb() -> Iterator[LocalDynamoDB | Moto]:
    """Start DynamoDB Local, or moto if it cannot run here, for measurements that do not depend on its speed."""
    with ExitStack() as stack:
        dynamodb: LocalDynamoDB | Moto
        try:
            dynamodb = stack.enter_context(LocalDynamoDB())
        except CannotMeasureError as err:
            say(f"moto instead: {err}")
            dynamodb = stack.enter_context(Moto())
        yield dynamodb


class LocalDynamoDB:
    """DynamoDB Local with template.yaml's table, empty. A context manager.

    Entering it raises CannotMeasureError if it cannot run here.
    """

    name = "DynamoDB Local"
    table = "bench"

    def __init__(self) -> None:
        self._server = DynamoDBLocal(heap=HEAP)
        self.url = self._server.url

    def __enter__(self) -> Self:
        subprocess.run([ROOT / "scripts" / "dynamodb-local" / "fetch"], check=True)
        if find_dynamodb_local() is None:
            raise CannotMeasureError("DynamoDB Local or Java is missing; see above")
        try:
            self._server.start()
        except UnavailableError as err:
            raise CannotMeasureError(str(err)) from err
        try:
            _create_table(self.url, self.table)
        except BaseException:
            self._server.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()


class Moto:
    """The embedded emulation of `coldstream up`, with the same table. A context manager."""

    name = "moto"
    table = "bench"
    url = ""

    def __enter__(self) -> Self:
        path = os.pathsep.join((str(ROOT), str(LAYER)))
        environment = {**os.environ, "PYTHONPATH": path}
        self._process = ChildProcess("coldstream.local.emulator", environment=environment, request={})
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
