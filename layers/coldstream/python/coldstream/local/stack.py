"""The emulated stack: everything that template.yaml declares, on this machine."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import urlsplit

import coldstream
from coldstream.errors import InvalidSettingError, UnavailableError
from coldstream.local.child_process import ChildProcess
from coldstream.local.deployment import DeployedFunction, Deployment, deploy, undeploy
from coldstream.local.environment import ENDPOINT, REGION, aws_environment, client, process_environment
from coldstream.local.function_protocol import FunctionConfig, InvocationReport
from coldstream.local.http_api import check_port
from coldstream.local.template import find_template, load_template

_POLL_S = 0.05
_RESTART_S = 0.5
_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
)


class EmulatedStack:
    """A context manager that starts the emulated AWS, creates the template's resources and runs its functions.

    The AWS is an embedded one, unless `inherited` (by default this process's environment) names an endpoint in
    AWS_ENDPOINT_URL. This process's environment and signal handlers stay untouched: everything runs in child processes,
    which end with this one, however that ends. A function's process that dies is restarted, as on Lambda, and its
    messages return to their queue.

    `parameters` are the template's, by name; InvalidSettingError is raised for an unknown one. `with_jobs` has
    functions run jobs, unless a parameter says otherwise. `port` is the resolver's; 0 is any free one. `on_invocation`
    is called, in other threads, for each event that a function has handled. What functions print goes to `log`.
    """

    def __init__(
        self,
        *,
        template: Path | None = None,
        parameters: Mapping[str, str] | None = None,
        port: int = 0,
        on_invocation: Callable[[InvocationReport], None] = lambda _: None,
        log: IO[Any] | None = None,
        inherited: Mapping[str, str] | None = None,
        with_jobs: bool = False,
    ) -> None:
        self._template = load_template(find_template(template))
        jobs = {"Jobs": "on"} if with_jobs and "Jobs" in self._template.body.get("Parameters", {}) else {}
        self._parameters = {**jobs, **(parameters or {})}
        unknown = set(self._parameters) - set(self._template.body.get("Parameters", {}))
        if unknown:
            raise InvalidSettingError("parameter", f"the template has no {', '.join(sorted(unknown))}")
        self._port = port
        self._on_invocation = on_invocation
        self._log = log
        self._inherited = os.environ if inherited is None else inherited
        self._emulator: ChildProcess | None = None
        self._deployment: Deployment | None = None
        self._functions: dict[str, ChildProcess] = {}
        self._addresses: dict[str, str] = {}
        self._died: deque[str] = deque()
        self._stopping = threading.Event()
        self._restarter: threading.Thread | None = None
        self.environment: dict[str, str] = {}
        """The environment for clients: the SDK's endpoint and credentials, and coldstream's settings."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            # Ctrl-C, too: nobody calls `__exit__` if this raises, and processes would go on.
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def resolver_url(self) -> str:
        """The address of the template's HTTP API."""
        return self.environment["COLDSTREAM_RESOLVER_URL"]

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions that run: those that a queue, a schedule or an HTTP API calls."""
        return tuple(deployed.config.name for deployed in self._deployed())

    def process_id(self, function: str) -> int:
        """Return the id of the process that runs a function now."""
        return self._functions[function].process_id

    def check(self) -> tuple[str, ...]:
        """Return the functions whose process died and was restarted since the last call.

        Raises UnavailableError if the emulated AWS died: nothing brings back what it held.
        """
        self._check_emulator()
        died: list[str] = []
        # One at a time, which is atomic: the restarter may add another at any moment.
        while self._died:
            died.append(self._died.popleft())
        return tuple(died)

    def wait_idle(self, timeout_s: float) -> None:
        """Wait until the functions' queues are empty and no message is in flight.

        Raises UnavailableError if the emulated AWS dies, or if the time is up.
        """
        sqs = client("sqs", self.environment)
        urls = [queue.url for deployed in self._deployed() for queue in deployed.config.queues]

        def is_empty() -> bool:
            return sum(_messages(sqs, url) for url in urls) == 0

        deadline = time.monotonic() + timeout_s
        while not (is_empty() and is_empty()):  # twice: a message may move between two counts while they are taken
            self._check_emulator()
            if time.monotonic() > deadline:
                raise UnavailableError(f"the local stack still has messages to handle after {timeout_s:g} s")
            time.sleep(_POLL_S)

    def dead_letters(self) -> int:
        """Count the messages that failed too often: those in the dead-letter queues of the functions' queues."""
        sqs = client("sqs", self.environment)
        names = set()
        for deployed in self._deployed():
            for queue in deployed.config.queues:
                attributes = sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["RedrivePolicy"])
                policy = json.loads(attributes.get("Attributes", {}).get("RedrivePolicy", "{}"))
                names.update([policy["deadLetterTargetArn"].rpartition(":")[2]] if policy else [])
        return sum(_messages(sqs, sqs.get_queue_url(QueueName=name)["QueueUrl"]) for name in names)

    def stop(self) -> None:
        """Let the functions finish what they are doing, delete the resources, and end every process."""
        self._stopping.set()
        # The restarter goes first: it would restart the functions that end from here on.
        if self._restarter is not None:
            self._restarter.join()
            self._restarter = None
        # All are asked before any is waited for: they finish their events at the same time.
        for process in self._functions.values():
            process.ask_to_stop()
        for process in self._functions.values():
            process.stop()
        self._functions = {}
        self._addresses = {}
        # What an embedded AWS holds ends with its process. Only what lives elsewhere has to be deleted.
        if self._deployment is not None and (self._emulator is None or self._deployment.elsewhere):
            undeploy(self._deployment.stack_name, self._deployment.environment, self._deployment.elsewhere)
        self._deployment = None
        if self._emulator is not None:
            self._emulator.stop()
            self._emulator = None

    def _start(self) -> None:
        # Before anything is created: otherwise a port that is taken would show only at the end.
        check_port(self._port)
        endpoint_url = self._inherited.get(ENDPOINT)
        if not endpoint_url:
            environment = process_environment(self._inherited, {"PYTHONPATH": self._path()})
            self._emulator = ChildProcess(
                "coldstream.local.emulator", environment=environment, request={}, log=self._log
            )
            endpoint_url = self._emulator.ready()["url"]
        aws = aws_environment(self._inherited, endpoint_url)
        stack_name = f"coldstream-local-{uuid.uuid4().hex[:8]}"
        self._deployment = deploy(self._template, aws, stack_name=stack_name, parameters=self._parameters)
        self._start_functions(aws)
        urls = {
            api: self._addresses[one.config.name]
            for one in self._deployed()
            for api in one.function.apis
            if not one.config.prefix
        }
        of_apis = {name: urls[api] for name, api in self._template.api_outputs.items() if api in urls}
        outputs = {**self._deployment.outputs, **of_apis}
        self.environment = {**aws, **{_setting(name): value for name, value in outputs.items()}}
        self._stopping.clear()
        self._restarter = threading.Thread(
            target=self._restart_dead, args=(aws,), name="restart functions", daemon=True
        )
        self._restarter.start()

    def _start_functions(self, aws: Mapping[str, str]) -> None:
        """Start a process for each function, and wait until all are ready.

        Each is added at once, so that `stop` finds those that ran if a later one fails. The function of the default
        route comes last: it is told the addresses of the other routes. All others import at the same time.
        """
        last = [one for one in self._deployed() if one.config.http and not one.config.prefix]
        for group in ([one for one in self._deployed() if one not in last], last):
            for deployed in group:
                self._functions[deployed.config.name] = self._run(deployed, aws)
            for deployed in group:
                url = self._functions[deployed.config.name].ready()["url"]
                if url is not None:
                    self._addresses[deployed.config.name] = url

    def _restart_dead(self, aws: Mapping[str, str]) -> None:
        """Restart functions whose process died. Those with a route keep their ports: clients have the addresses."""
        while not self._stopping.wait(_RESTART_S):
            for deployed in self._deployed():
                dead = self._functions[deployed.config.name]
                if not dead.is_alive():
                    # It reads the pipe to its end: the last reports come before those of the next process.
                    dead.stop()
                    self._functions[deployed.config.name] = self._run(deployed, aws)
                    self._died.append(deployed.config.name)

    def _check_emulator(self) -> None:
        if self._emulator is not None and not self._emulator.is_alive():
            raise UnavailableError("the emulated AWS of the local stack died")

    def _deployed(self) -> list[DeployedFunction]:
        deployed = self._deployment.functions if self._deployment is not None else ()
        return [one for one in deployed if one.config.queues or one.config.http or one.config.every_s]

    def _run(self, deployed: DeployedFunction, aws: Mapping[str, str]) -> ChildProcess:
        """Start the process of a function with the variables that it has on AWS."""
        function, config = deployed.function, self._with_addresses(deployed.config)
        environment = process_environment(
            self._inherited,
            aws,
            {"AWS_REGION": aws[REGION], "AWS_LAMBDA_FUNCTION_NAME": config.arn.rpartition(":")[2]},
            {"PYTHONPATH": self._path(function.code, *function.layers), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"},
            {"COLDSTREAM_LOCAL": "true"},  # its callers are on this machine, and nobody vouches for them
            deployed.environment,
        )
        return ChildProcess(
            "coldstream.local.function_process",
            environment=environment,
            request=asdict(config),
            log=self._log,
            on_message=lambda message: self._on_invocation(InvocationReport(**message)),
        )

    def _with_addresses(self, config: FunctionConfig) -> FunctionConfig:
        """Add the port of a function with a route, and to that of the default route the addresses of the others."""
        known = urlsplit(self._addresses.get(config.name, "")).port
        if config.prefix or not config.http:
            return replace(config, port=known or 0)
        mine = next(one for one in self._deployed() if one.config.name == config.name)
        forwards = {}
        for one in self._deployed():
            url = self._addresses.get(one.config.name)
            if one.config.prefix and url is not None and set(one.function.apis) & set(mine.function.apis):
                forwards[one.config.prefix] = url
        # The port that was asked for is that of the first API, which is the resolver's.
        first = next(one for one in self._deployed() if one.config.http and not one.config.prefix)
        return replace(config, port=known or (self._port if first is mine else 0), forwards=forwards)

    def _path(self, *directories: Path) -> str:
        """Return a PYTHONPATH: `directories`, then the coldstream that runs now, then what was inherited."""
        inherited = self._inherited.get("PYTHONPATH")
        paths = [*directories, Path(coldstream.__path__[0]).parent, *([inherited] if inherited else [])]
        return os.pathsep.join(map(str, paths))


def _setting(output: str) -> str:
    """Return the name of the setting that an output of the template holds: `EventBus` is COLDSTREAM_EVENT_BUS."""
    return "COLDSTREAM_" + re.sub(r"(?<!^)(?=[A-Z])", "_", output).upper()


def _messages(sqs: Any, url: str) -> int:
    """Count a queue's messages, including those in flight and those delayed."""
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(_COUNTS))["Attributes"]
    return sum(int(attributes[name]) for name in _COUNTS)
