"""A child without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

from coldstream.errors import InvalidSettingError
from coldstream.gateway.alone.logins import PasswordCheck
from coldstream.gateway.alone.opening import opened_alone
from coldstream.gateway.alone.options import AloneOptions
from coldstream.gateway.alone.password_command import PasswordCommand
from coldstream.gateway.alone.password_file import PasswordFile
from coldstream.gateway.alone.permission_file import PermissionFile
from coldstream.gateway.alone.permissions import ALL, READ_ALL, PermissionSource
from coldstream.gateway.alone.server import AloneServer
from coldstream.gateway.cold import ColdRow
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.port import History
from coldstream.gateway.process.listening import listen_at
from coldstream.gateway.process.options import AloneSide, GatewayOptions
from coldstream.gateway.process.served import Served
from coldstream.gateway.process.served_proxy import ask_archive, coldest_rows
from coldstream.gateway.process.tls import ServerCertificate
from coldstream.store.open_archive import OpenArchive
from coldstream.streams import DirectArchive


async def open_alone(
    options: GatewayOptions,
    archive: OpenArchive,
    history: History,
    figures: GatewayFigures,
    certificate: ServerCertificate | None,
) -> Served:
    """Listen, and answer from the archive. Raises InvalidSettingError."""
    alone = options.alone
    assert alone is not None
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(
            opened_alone(
                DirectArchive(archive.table, archive.objects, archive.keys),
                history,
                _passwords(alone),
                permissions=_permissions(alone),
                options=alone_options(options, alone),
                figures=figures,
            )
        )
        context = None if certificate is None else certificate.context
        # First of all at the end: connections are cut off before what they use is closed.
        server = await stack.enter_async_context(AloneServer(parts, tls=context, bound=listen_at(options.listen)))
        return ServedAlone(server, history, figures, certificate, stack.pop_all())


def alone_options(options: GatewayOptions, alone: AloneSide) -> AloneOptions:
    """Return the options as archive-only mode has them."""
    return AloneOptions(
        advertised_host="" if options.advertise is None else options.advertise.host,
        advertised_port=0 if options.advertise is None else options.advertise.port,
        max_connections=options.connections_of_process,
        creates_streams=alone.is_creating,
        gaps=options.gaps,
        super_streams=alone.super_streams,
    )


def _passwords(alone: AloneSide) -> PasswordCheck:
    with _said_of("--users" if alone.users is not None else "--auth-command"):
        return PasswordCommand(alone.auth_command) if alone.users is None else PasswordFile(alone.users)


def _permissions(alone: AloneSide) -> PermissionSource:
    if alone.permissions is not None:
        with _said_of("--permissions"):
            return PermissionFile(alone.permissions)
    return ALL if alone.is_creating else READ_ALL


@contextmanager
def _said_of(option: str) -> Iterator[None]:
    """Name a setting that is wrong as it was given."""
    try:
        yield
    except InvalidSettingError as err:
        raise InvalidSettingError(option, err.problem) from err


class ServedAlone:
    """Implements `Served` by the server that answers alone."""

    def __init__(
        self,
        server: AloneServer,
        history: History,
        figures: GatewayFigures,
        certificate: ServerCertificate | None,
        held: AsyncExitStack,
    ) -> None:
        self._server = server
        self._history = history
        self._figures = figures
        self._certificate = certificate
        self._held = held

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
        """Read the certificate again."""
        if self._certificate is not None:
            self._certificate.reload()

    def coldest(self, count: int) -> tuple[ColdRow, ...]:
        """Return the subscriptions that are furthest behind, and bring lag and bytes up to date."""
        self._server.refresh()
        return coldest_rows(self._figures, count)

    async def archive_problem(self) -> str | None:
        """Ask for a stream."""
        return await ask_archive(self._history)

    async def close(self) -> None:
        """Cut off what is open; close the direct streams, and with them what clients have published; free the rest."""
        await self._held.aclose()
        await self._history.close()
