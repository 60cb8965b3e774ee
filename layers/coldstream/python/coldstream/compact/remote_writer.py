"""Writing objects in a process that does not share this one's environment, such as an executor of Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from coldstream.compact.task import CompactionTask, GroupFailure, write_task
from coldstream.compact.write import MergedFragment
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects

CARRIED_VARIABLES = ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
"""They say where AWS is. Credentials are not among them: each machine finds its own."""


@dataclass(frozen=True, slots=True)
class RemoteWriter:
    """Writes the objects of tasks into a bucket, below a prefix. It is a value that travels to other processes.

    `variables` are those of CARRIED_VARIABLES that are set where it was made.
    """

    bucket: str
    prefix: str
    variables: tuple[tuple[str, str], ...]

    @classmethod
    def from_environment(cls, bucket: str, prefix: str, environment: Mapping[str, str] = os.environ) -> RemoteWriter:
        """Make a writer that finds AWS where this process finds it."""
        return cls(
            bucket, prefix, tuple((name, environment[name]) for name in CARRIED_VARIABLES if name in environment)
        )

    def write(self, task: CompactionTask) -> MergedFragment | GroupFailure:
        """Write the object of a task in the process that calls this; the variables enter its environment."""
        return write_task(_objects(self), Keys(self.prefix), task)


@cache
def _objects(writer: RemoteWriter) -> S3Objects:
    # The SDK reads the environment when it makes the client: the variables have to be there by then.
    os.environ.update(writer.variables)
    return S3Objects(writer.bucket)
