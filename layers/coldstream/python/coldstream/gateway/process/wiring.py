"""The server that the options mean: in front of a broker, or alone."""

from __future__ import annotations

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.gateway_history import GatewayHistory
from coldstream.gateway.process.options import GatewayOptions
from coldstream.gateway.process.served import Served
from coldstream.gateway.process.served_alone import open_alone
from coldstream.gateway.process.served_proxy import open_proxy
from coldstream.gateway.process.tls import ServerCertificate
from coldstream.store.open_archive import OpenArchive

CONNECTIONS = 64
"""To S3, beside those of readings."""


async def open_served(options: GatewayOptions, figures: GatewayFigures) -> Served:
    """Open the archive of the environment, and listen. Raises InvalidSettingError."""
    certificate = None if options.tls is None else ServerCertificate(options.tls)
    archive = OpenArchive.of_environment(connections=CONNECTIONS)
    history = GatewayHistory(
        archive.table, archive.objects, budget_bytes=options.memory_of_process_bytes, figures=figures
    )
    try:
        if options.alone is not None:
            return await open_alone(options, archive, history, figures, certificate)
        return await open_proxy(options, history, figures, certificate)
    except BaseException:
        await history.close()
        raise
