"""Runs a gateway in this process: the parent, what it answers operators, and what it asks the broker."""

from __future__ import annotations

import logging
from contextlib import ExitStack, suppress

import typer

from coldstream.gateway.process.admin import GatewayAdmin
from coldstream.gateway.process.broker_probe import BrokerProbe
from coldstream.gateway.process.listening import check_no_loop
from coldstream.gateway.process.options import BrokerSide, GatewayOptions
from coldstream.gateway.process.supervisor import Supervisor
from coldstream.web.json_log import log_as_json

_LOG = logging.getLogger(__name__)


def run_gateway(options: GatewayOptions) -> None:
    """Run it until a signal has ended it. Raises InvalidSettingError."""
    log_as_json(options.log_level)
    if options.broker is not None:
        check_no_loop(options.listen, options.broker.addresses)
        _warn_of_same_addresses(options, options.broker)
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


def _warn_of_same_addresses(options: GatewayOptions, broker: BrokerSide) -> None:
    # No error: a name may lead clients to a balancer and the gateway to the broker.
    same = {node.gateway for node in options.nodes if node.gateway == node.broker}
    if options.advertise in broker.addresses:
        same.add(options.advertise)
    for address in sorted(same):
        _LOG.warning(
            "clients are told the broker's own address: do they come here by it?", extra={"address": str(address)}
        )


def _say(text: str) -> None:
    # A full disk or a reader that has gone is no reason not to serve.
    with suppress(OSError):
        typer.echo(f"coldstream gateway: {text}")
