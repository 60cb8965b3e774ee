"""Run a client's own test suite in a network of its own, where its fixed ports are free, and say how each test ended.

    unshare --net python -m tests.gateway.suites.run_suite SUITE RELEASE direct|gateway DIRECTORY

The suites want a broker at localhost's ports 5552 and, by TLS, 5551, AMQP at 5672, and management at 15672. With
`gateway` those of streams are a gateway's, and the broker's own another one. The last line is JSON: test by name to
outcome. Everything else is for who reads logs, and in DIRECTORY.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from coldstream.local.stack import EmulatedStack
from tests.gateway.clients.gateway_run import GatewayRun
from tests.gateway.suites.suites import SUITES, Suite
from tests.support.agent import AgentProcess
from tests.support.broker import Broker
from tests.support.releases import RELEASES

AMQP_PORT, STREAM_PORT, TLS_PORT, MANAGEMENT_PORT = 5672, 5552, 5551, 15672
BEHIND_PORT, BEHIND_TLS_PORT, DISTRIBUTION_PORT = 15552, 15551, 25672
ADD_USER = (
    ("add_user", "rabbit", "rabbit"),
    ("set_user_tags", "rabbit", "management"),
    ("set_permissions", "rabbit", ".*", ".*", ".*"),
)
"""The JavaScript client's tests connect as this user, and count its connections. An administrator would see those of
the agent, too."""

_FLAGS_OF, _SET_FLAGS, _UP = 0x8913, 0x8914, 1


def raise_loopback() -> None:
    """Bring the loopback interface up: in a new network it is down."""
    with socket.socket() as any_socket:
        asked = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, _FLAGS_OF, asked), 16)
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def open_broker(release: str, certificates: Path, *, is_behind: bool) -> Broker:
    """Return a broker at the suites' ports, or at others if a gateway takes those."""
    port, tls_port = (BEHIND_PORT, BEHIND_TLS_PORT) if is_behind else (STREAM_PORT, TLS_PORT)
    settings = (
        "stream.advertised_host = localhost\n"
        f"stream.listeners.ssl.1 = 127.0.0.1:{tls_port}\n"
        f"stream.advertised_tls_port = {tls_port}\n"
        f"ssl_options.cacertfile = {certificates}/ca_certificate.pem\n"
        f"ssl_options.certfile = {certificates}/server_certificate.pem\n"
        f"ssl_options.keyfile = {certificates}/server_key.pem\n"
        "ssl_options.verify = verify_peer\n"
        "ssl_options.fail_if_no_peer_cert = false\n"
    )
    return Broker(
        release=next(one for one in RELEASES if one.version == release),
        management=True,
        plugins=["rabbitmq_stream_management"],
        settings=settings,
        ports=(AMQP_PORT, port, DISTRIBUTION_PORT, MANAGEMENT_PORT),
    )


def open_gateways(opening: ExitStack, broker: Broker, certificates: Path, directory: Path) -> None:
    """Start an archive with an agent that archives everything, and gateways at the suites' ports."""
    log = opening.enter_context((directory / "functions.log").open("w"))
    stack = opening.enter_context(EmulatedStack(inherited={}, parameters={"FragmentBytes": "65536"}, log=log))
    uri = broker.stream_uri
    opening.enter_context(AgentProcess(stack.environment, directory / "agent", uri, "--data", broker.data_directory))
    tls = ("--certificate", f"{certificates}/server_certificate.pem", "--private-key", f"{certificates}/server_key.pem")
    for port, options in ((STREAM_PORT, ()), (TLS_PORT, tls)):
        advertise = ("--advertise", f"localhost:{port}")
        log_of_gateway = directory / f"gateway-{port}.log"
        gateway = GatewayRun(stack.environment, broker.stream_port, log_of_gateway, *advertise, *options, port=port)
        opening.enter_context(gateway)


def run(suite: Suite, directory: Path) -> Mapping[str, str]:
    """Run each program of a suite once, and return how its tests ended."""
    outcomes: dict[str, str] = {}
    for program in suite.programs:
        log = directory / f"{program.name}.log"
        with log.open("wb") as output:
            environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "RUST_BACKTRACE": "0"}
            subprocess.run(
                [program, *suite.arguments(directory)],
                cwd=suite.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=suite.timeout_s,
                check=False,
            )
        outcomes |= suite.outcomes(program, directory, log.read_text(errors="replace"))
    return outcomes


def main() -> None:
    """Do what the command line says."""
    name, release, way, where = sys.argv[1:]
    suite, directory = SUITES[name], Path(where)
    raise_loopback()
    certificates = directory / "certificates"  # in the temporary directory, which brokers in a root of their own see
    shutil.copytree(suite.certificates, certificates)
    certificates.chmod(0o755)
    with ExitStack() as opening:
        broker = opening.enter_context(open_broker(release, certificates, is_behind=way == "gateway"))
        for command in ADD_USER:
            broker.ctl(*command)
        if way == "gateway":
            open_gateways(opening, broker, certificates, directory)
        outcomes = run(suite, directory)
    sys.stdout.write(json.dumps(outcomes) + "\n")


if __name__ == "__main__":
    main()
