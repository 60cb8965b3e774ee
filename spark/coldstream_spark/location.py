"""Where the archive is: found by the driver and sent to the executors. Each finds its own credentials."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Self

from coldstream.errors import InvalidSettingError
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable

_CARRIED = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True)
class ArchiveLocation:
    """A table and a bucket, and the variables of the SDK that say in which region or emulation they are."""

    table: str
    bucket: str
    variables: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, options: Mapping[str, str], environment: Mapping[str, str]) -> Self:
        """Use the options, else variables. Raises InvalidSettingError if neither names table and bucket."""
        variables = {name: environment[name] for name in _CARRIED if environment.get(name)}
        if environment.get("AWS_REGION"):  # botocore does not read it
            variables.setdefault("AWS_DEFAULT_REGION", environment["AWS_REGION"])
        if "region" in options:
            variables["AWS_DEFAULT_REGION"] = options["region"]
        if "endpoint" in options:
            variables = {name: value for name, value in variables.items() if not name.startswith("AWS_ENDPOINT")}
            variables["AWS_ENDPOINT_URL"] = options["endpoint"]
        table, bucket = (_named(name, options, environment) for name in ("table", "bucket"))
        return cls(table, bucket, tuple(variables.items()))

    def open_table(self) -> DynamoTable:
        """Return the manifest's table."""
        return _table(self)

    def open_bucket(self, connections: int = 10) -> S3Objects:
        """Return the bucket's objects, over so many connections."""
        return _bucket(self, connections)

    def set_variables(self) -> None:
        """Set the variables in this process, a Python worker that Spark started: the SDK reads its environment."""
        os.environ.update(self.variables)


def _named(name: str, options: Mapping[str, str], environment: Mapping[str, str]) -> str:
    variable = f"COLDSTREAM_{name.upper()}"
    value = options.get(name) or environment.get(variable)
    if not value:
        raise InvalidSettingError(f"option {name}", f"is missing: give it, or set {variable} at the driver")
    return value


@cache
def _table(location: ArchiveLocation) -> DynamoTable:
    location.set_variables()
    return DynamoTable(location.table)


@cache
def _bucket(location: ArchiveLocation, connections: int) -> S3Objects:
    """Make the client once a process: a worker runs one task after another, and a client takes 0.2 s.

    All objects that exist by then live as long as the worker. Spark collects garbage after each task, and Python now
    and then: without `freeze`, searching them each time takes a sixth of the CPU of a scan.
    """
    location.set_variables()
    objects = S3Objects(location.bucket, connections=connections)
    gc.freeze()
    return objects
