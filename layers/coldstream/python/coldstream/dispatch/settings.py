"""What a process knows of queue and EMR: its environment.

COLDSTREAM_JOBS_QUEUE         URL of the queue of jobs that Lambdas run
COLDSTREAM_EMR_APPLICATION    id of the EMR Serverless application
COLDSTREAM_EMR_ROLE           ARN of the role of its runs
COLDSTREAM_EMR_SCRIPTS        where the scripts and their archives are: s3://BUCKET/PREFIX/
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from coldstream.dispatch.runner import AvailableRunners
from coldstream.errors import InvalidSettingError

_APPLICATION = re.compile(r"[0-9a-z]{1,64}")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+")
_SCRIPTS = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/([A-Za-z0-9_.=-]+/)*")


@dataclass(frozen=True, slots=True)
class EmrSettings:
    """An application of EMR Serverless, the role of its runs, and where the scripts are: a prefix that ends in `/`."""

    application: str
    role: str
    scripts: str


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """The queue of jobs for Lambdas, and EMR; None for what is not configured."""

    queue_url: str | None = None
    emr: EmrSettings | None = None

    @property
    def available(self) -> AvailableRunners:
        """Which runners there are beside workers."""
        return AvailableRunners(self.queue_url is not None, self.emr is not None)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the variables, an empty one counting as absent. Raises InvalidSettingError, naming the variable."""
        queue_url = environment.get("COLDSTREAM_JOBS_QUEUE") or None
        if queue_url is not None and not queue_url.startswith(("https://", "http://")):
            raise InvalidSettingError("COLDSTREAM_JOBS_QUEUE", f"{queue_url!r} is no URL of a queue")
        names = {name: f"COLDSTREAM_EMR_{name.upper()}" for name in ("application", "role", "scripts")}
        given = {name: environment.get(variable, "") for name, variable in names.items()}
        if not any(given.values()):
            return cls(queue_url)
        for name, expression in (("application", _APPLICATION), ("role", _ROLE), ("scripts", _SCRIPTS)):
            if not expression.fullmatch(given[name]):
                problem = f"{given[name]!r} is malformed" if given[name] else "is not set, and another one of EMR is"
                raise InvalidSettingError(names[name], problem)
        return cls(queue_url, EmrSettings(**given))
