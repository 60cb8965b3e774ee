"""The console's process: made of the archive, served until a signal ends it."""

from __future__ import annotations

from collections.abc import Callable

from coldstream.console.app import make_console
from coldstream.console.archive_access import ArchiveAccess
from coldstream.console.console_options import ConsoleOptions
from coldstream.web.access_tokens import AccessTokens
from coldstream.web.listening import Listening
from coldstream.web.server_process import serve_until_signal


async def run(
    archive: ArchiveAccess,
    options: ConsoleOptions,
    listening: Listening,
    tokens: AccessTokens | None = None,
    *,
    on_ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until a signal ends it. `on_ready` is called with the URL.

    Raises InvalidSettingError, also for an address that cannot be listened at.
    """
    listening.check(tokens)
    bound = listening.bind()
    try:
        app = make_console(archive, options, tokens)
        await serve_until_signal(app, listening, bound, on_ready=on_ready)
    finally:
        archive.catalogue.close()
