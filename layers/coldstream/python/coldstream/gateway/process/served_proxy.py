"""A child in front of a broker."""

from __future__ import annotations

from coldstream.errors import ColdstreamError
from coldstream.gateway.cold import ColdRow
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.port import History
from coldstream.gateway.process.addresses import HostPort
from coldstream.gateway.process.listening import listen_at
from coldstream.gateway.process.options import BrokerSide, GatewayOptions
from coldstream.gateway.process.served import Served
from coldstream.gateway.process.tls import ServerCertificate, broker_context, renewed_broker_context
from coldstream.gateway.proxy.addresses import GatewayAddresses
from coldstream.gateway.proxy.options import ProxyOptions, Upstream
from coldstream.gateway.proxy.server import GatewayServer
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.takeover import takeover_maker
from coldstream.live.subscription import Place

PROBED_STREAM = "coldstream.gateway.probe"
"""A name that nobody has: whether the table answers is what counts."""


async def open_proxy(
    options: GatewayOptions,
    history: History,
    figures: GatewayFigures,
    certificate: ServerCertificate | None,
) -> Served:
    """Listen, in front of a broker. Raises InvalidSettingError."""
    broker = options.broker
    assert broker is not None
    upstream = Upstream(
        tuple(map(_place, broker.addresses)), broker_context(broker) if broker.is_tls else None, broker.server_name
    )
    addresses = GatewayAddresses(
        None if options.advertise is None else _place(options.advertise),
        {_place(node.broker): _place(node.gateway) for node in options.nodes},
    )
    proxy = ProxyOptions(
        upstream,
        _place(options.listen),
        None if certificate is None else certificate.context,
        addresses,
        max_connections=options.connections_of_process,
    )
    takeover = TakeoverOptions(gaps=options.gaps)
    server = GatewayServer(proxy, takeover_maker(history, takeover, figures), figures, bound=listen_at(options.listen))
    await server.__aenter__()
    return ServedProxy(server, broker, history, figures, certificate)


class ServedProxy:
    """Implements `Served` by the proxy and the archive."""

    def __init__(
        self,
        server: GatewayServer,
        broker: BrokerSide,
        history: History,
        figures: GatewayFigures,
        certificate: ServerCertificate | None,
    ) -> None:
        self._server = server
        self._broker = broker
        self._history = history
        self._figures = figures
        self._certificate = certificate

    def stop_listening(self) -> None:
        """Take no connection any more."""
        self._server.stop_listening()

    def close_some(self, count: int) -> None:
        """Tell some of the clients to go."""
        self._server.close_some(count)

    @property
    def open_connections(self) -> int:
        """How many are open."""
        return self._server.open_connections

    def reload(self) -> None:
        """Read the certificate again, and the authorities that vouch for the broker."""
        if self._certificate is not None:
            self._certificate.reload()
        if self._broker.is_tls:
            tls = renewed_broker_context(self._broker)
            if tls is not None:
                self._server.renew_upstream_tls(tls)

    def coldest(self, count: int) -> tuple[ColdRow, ...]:
        """Return the cold subscriptions that are furthest behind, and bring lag and bytes up to date."""
        self._server.refresh()
        return coldest_rows(self._figures, count)

    async def archive_problem(self) -> str | None:
        """Ask for a stream."""
        return await ask_archive(self._history)

    async def close(self) -> None:
        """Cut off what is open, and free everything."""
        await self._server.close()
        await self._history.close()


def coldest_rows(figures: GatewayFigures, count: int) -> tuple[ColdRow, ...]:
    """Return the cold subscriptions that are furthest behind, and bring the lag up to date."""
    rows = sorted((reader.row() for reader in figures.cold), key=lambda row: row.behind, reverse=True)
    figures.lag_offsets = rows[0].behind if rows else 0
    return tuple(rows[:count])


async def ask_archive(history: History) -> str | None:
    """Ask for a stream that nobody has; return why the table doesn't answer, None if it does."""
    try:
        await history.bounds("/", PROBED_STREAM, fresh=True)
    except ColdstreamError as err:
        return str(err)
    return None


def _place(address: HostPort) -> Place:
    return address.host, address.port
