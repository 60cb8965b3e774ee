"""Places: where objects are, for a process that was not told by its environment, as an executor of Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from coldstream.compact.task import Failure, Task, write_task
from coldstream.compact.write import Written
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects

TRAVELS = ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
"""Variables that say where AWS is; credentials are each machine's own."""


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket, the prefix of its keys, and variables of the SDK's for whoever writes there."""

    bucket: str
    prefix: str
    variables: tuple[tuple[str, str], ...]

    @classmethod
    def here(cls, bucket: str, prefix: str, environment: Mapping[str, str] = os.environ) -> Place:
        """Describe the place as this process sees it."""
        return cls(bucket, prefix, tuple((name, environment[name]) for name in TRAVELS if name in environment))

    def write(self, task: Task) -> Written | Failure:
        """Write the object of a task, in whichever process; its environment gets the variables."""
        return write_task(_objects(self), Keys(self.prefix), task)


@cache
def _objects(place: Place) -> S3Objects:
    os.environ.update(place.variables)
    return S3Objects(place.bucket)
