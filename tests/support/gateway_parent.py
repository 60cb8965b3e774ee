"""A gateway's parent of which a test starts a process: its children serve words (gateway_child.py).

    python -m tests.support.gateway_parent PROCESSES DRAIN_SECONDS [ADVERTISED HOST]

It says its two ports once it is ready.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

import typer

from coldstream.errors import InvalidSettingError
from coldstream.gateway.process.addresses import HostPort
from coldstream.gateway.process.admin import GatewayAdmin
from coldstream.gateway.process.options import AloneSide, GatewayOptions
from coldstream.gateway.process.supervisor import Supervisor
from coldstream.web.json_log import log_as_json
from tests.support.gateway_child import start_word_child


def main() -> int:
    processes, drain_s, *rest = sys.argv[1:]
    log_as_json()
    options = GatewayOptions(
        HostPort("127.0.0.1", 0),
        alone=AloneSide(auth_command=("true",)),
        processes=int(processes),
        drain_s=float(drain_s),
        advertise=HostPort(rest[0], 1) if rest else None,
    )
    with ExitStack() as stack:
        supervisor = Supervisor(
            options,
            start=start_word_child,
            on_ready=lambda at: typer.echo(f"{at.port} {admin.address.port}"),
        )
        admin = stack.enter_context(GatewayAdmin(supervisor, None, HostPort("127.0.0.1", 0)))
        try:
            supervisor.run()
        except InvalidSettingError as err:
            typer.echo(err, err=True)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
