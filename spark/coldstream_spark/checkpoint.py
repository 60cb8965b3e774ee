"""The checkpoint of a replay into a table: which replay it belongs to, and how far Spark has come.

    {path}/replay.json     ours: the request
    {path}/offsets/{N}     Spark's: the end of batch N; a line each of version, metadata and positions
    {path}/commits/{N}     Spark's: batch N is in the table

So what a run has done is read from its checkpoint afterwards, and not taken from what Spark reports while it runs.
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
    """The checkpoint's directory, on whichever file system Hadoop has for its path."""

    spark: SparkSession
    path: str
    vhost: str

    def claim(self, request: Mapping[str, Any]) -> None:
        """Record the request that the checkpoint belongs to. Raises InvalidQueryError if it belongs to another one."""
        stored = self._read("replay.json")
        if stored is None:
            self._write("replay.json", json.dumps(request).encode())
            return
        found = json.loads(stored)
        other = [name for name, value in request.items() if found.get(name) != value]
        if other:
            was = ", ".join(f"{name} {found.get(name)}" for name in other)
            raise InvalidQueryError("--checkpoint", f"{self.path} belongs to another replay: {was}")

    def committed(self) -> Positions:
        """Return the positions up to which the table is complete; none before the first batch."""
        return self._positions("commits")

    def begun(self) -> Positions:
        """Return the end of the last batch that was begun: the next run finishes exactly that batch."""
        return self._positions("offsets")

    def _positions(self, directory: str) -> Positions:
        files, path = self._file(directory)
        if not files.exists(path):
            return {}
        names = [status.getPath().getName() for status in files.listStatus(path)]
        batches = [int(name) for name in names if name.isdigit()]  # not the .crc files that Hadoop puts beside them
        content = self._read(f"offsets/{max(batches)}") if batches else None
        if content is None:
            return {}
        lines = content.decode().splitlines()
        try:
            return from_json(json.loads(lines[_POSITIONS_LINE]), self.vhost)
        except (IndexError, ValueError) as err:
            raise InvalidQueryError(
                "--checkpoint", f"{self.path} does not hold the positions of a replay: {err}"
            ) from err

    def _read(self, name: str) -> bytes | None:
        files, path = self._file(name)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def _write(self, name: str, content: bytes) -> None:
        files, path = self._file(name)
        stream = files.create(path, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def _file(self, name: str) -> tuple[Any, Any]:
        context = self.spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001  PySpark has no files of its own
        path = jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}")
        return path.getFileSystem(context._jsc.hadoopConfiguration()), path  # noqa: SLF001
