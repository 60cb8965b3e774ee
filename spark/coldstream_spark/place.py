"""Where the archive is, found by the driver and carried to the executors; credentials are for each to find."""

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
class Place:
    """A table and a bucket, and the SDK's variables that say where these are, if any do."""

    table: str
    bucket: str
    variables: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, options: Mapping[str, str], environment: Mapping[str, str]) -> Self:
        """Take options before variables. Raises InvalidSettingError where neither names table and bucket."""
        variables = {name: environment[name] for name in _CARRIED if environment.get(name)}
        if environment.get("AWS_REGION"):  # which botocore does not look at
            variables.setdefault("AWS_DEFAULT_REGION", environment["AWS_REGION"])
        if "region" in options:
            variables["AWS_DEFAULT_REGION"] = options["region"]
        if "endpoint" in options:
            variables = {name: value for name, value in variables.items() if not name.startswith("AWS_ENDPOINT")}
            variables["AWS_ENDPOINT_URL"] = options["endpoint"]
        table, bucket = (_named(name, options, environment) for name in ("table", "bucket"))
        return cls(table, bucket, tuple(variables.items()))

    def open_table(self) -> DynamoTable:
        """Return the manifest."""
        return _table(self)

    def open_bucket(self) -> S3Objects:
        """Return the objects."""
        return _bucket(self)

    def set_variables(self) -> None:
        """Tell the SDK, which reads the environment: that of a Python worker, which Spark starts for its tasks."""
        os.environ.update(self.variables)


def _named(name: str, options: Mapping[str, str], environment: Mapping[str, str]) -> str:
    variable = f"COLDSTREAM_{name.upper()}"
    value = options.get(name) or environment.get(variable)
    if not value:
        raise InvalidSettingError(f"option {name}", f"is needed, or {variable} at the driver")
    return value


@cache
def _table(place: Place) -> DynamoTable:
    place.set_variables()
    return DynamoTable(place.table)


@cache
def _bucket(place: Place) -> S3Objects:
    """Make the client once a process: tasks come one after another, and a client takes 0.2 s.

    What a worker has made by then stays as long as it does. Spark has it collect garbage after each task, and Python
    does by itself; to look through all of that each time takes a sixth of the CPU of a scan.
    """
    place.set_variables()
    objects = S3Objects(place.bucket)
    gc.freeze()
    return objects
