"""The checkpoint of a replay into a table: what it is of, and how far Spark says there that it is.

    {path}/replay.json     what was asked for
    {path}/offsets/{N}     Spark's: to where batch N goes; a line of the version, one of metadata, one of positions
    {path}/commits/{N}     Spark's: batch N is in the table

So what a run has done is told from what is there after it, and not from what Spark reports while it runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from coldstream.errors import InvalidQueryError
from coldstream_spark.positions import Positions, from_json

_POSITIONS_LINE = 2


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A directory of whichever file system Hadoop has for the path."""

    spark: SparkSession
    path: str
    vhost: str

    def claim(self, asked: Mapping[str, Any]) -> None:
        """Write down what the checkpoint is of. Raises InvalidQueryError where it is of something else."""
        there = self._read("replay.json")
        if there is None:
            self._write("replay.json", json.dumps(asked).encode())
            return
        found = json.loads(there)
        other = [name for name, value in asked.items() if found.get(name) != value]
        if other:
            was = ", ".join(f"{name} {found.get(name)}" for name in other)
            raise InvalidQueryError("--checkpoint", f"{self.path} is of another replay: {was}")

    def committed(self) -> Positions:
        """Return up to where the table is whole; nothing before the first batch."""
        return self._positions("commits")

    def begun(self) -> Positions:
        """Return where the last batch ends that was begun: the next run finishes it, as it is."""
        return self._positions("offsets")

    def _positions(self, directory: str) -> Positions:
        files, place = self._place(directory)
        if not files.exists(place):
            return {}
        names = [status.getPath().getName() for status in files.listStatus(place)]
        batches = [int(name) for name in names if name.isdigit()]
        content = self._read(f"offsets/{max(batches)}") if batches else None
        if content is None:
            return {}
        lines = content.decode().splitlines()
        try:
            return from_json(json.loads(lines[_POSITIONS_LINE]), self.vhost)
        except (IndexError, ValueError) as err:
            raise InvalidQueryError("--checkpoint", f"{self.path} has no positions of a replay: {err}") from err

    def _read(self, name: str) -> bytes | None:
        files, place = self._place(name)
        if not files.exists(place):
            return None
        stream = files.open(place)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def _write(self, name: str, content: bytes) -> None:
        files, place = self._place(name)
        stream = files.create(place, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def _place(self, name: str) -> tuple[Any, Any]:
        context = self.spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001  PySpark has no files of its own
        place = jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}")
        return place.getFileSystem(context._jsc.hadoopConfiguration()), place  # noqa: SLF001
