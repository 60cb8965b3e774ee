"""Runs a gateway in this process: the parent, what it answers operators, and what it asks the broker."""

from __future__ import annotations

from contextlib import ExitStack, suppress

import typer

from coldstream.gateway.process.admin import GatewayAdmin
from coldstream.gateway.process.broker_probe import BrokerProbe
from coldstream.gateway.process.listening import check_no_loop
from coldstream.gateway.process.options import GatewayOptions
from coldstream.gateway.process.supervisor import Supervisor
from coldstream.web.json_log import log_as_json


def run_gateway(options: GatewayOptions) -> None:
    """Run it until a signal has ended it. Raises InvalidSettingError."""
    log_as_json(options.log_level)
    if options.broker is not None:
        check_no_loop(options.listen, options.broker.addresses)
    with ExitStack() as stack:
        probe = None if options.broker is None else BrokerProbe(options.broker)
        supervisor = Supervisor(options, on_ready=lambda at: _say(f"listening at {at}"))
        if options.admin is not None:
            served = stack.enter_context(GatewayAdmin(supervisor, probe, options.admin))
            _say(f"metrics at http://{served.address}/metrics")
        if probe is not None:
            probe.start()
            stack.callback(probe.stop)
        supervisor.run()


def _say(text: str) -> None:
    # A full disk or a reader that has gone is no reason not to serve.
    with suppress(OSError):
        typer.echo(f"coldstream gateway: {text}")
