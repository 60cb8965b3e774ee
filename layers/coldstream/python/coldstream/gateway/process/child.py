"""A child: an event loop with a server, until a signal ends it or its parent goes.

    python -m coldstream.gateway.process.child CHANNEL NUMBER

SIGTERM drains (`draining.py`). SIGINT is the parent's alone. SIGHUP reads the certificate again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

from coldstream.errors import InvalidInputError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.process.channel import ChildMessage, receive_options
from coldstream.gateway.process.child_reports import ChildReports, say
from coldstream.gateway.process.descriptors import allow_descriptors
from coldstream.gateway.process.draining import drain
from coldstream.gateway.process.event_loop import run_loop
from coldstream.gateway.process.options import GatewayOptions
from coldstream.gateway.process.served import Served
from coldstream.web.json_log import log_as_json

Open = Callable[[GatewayOptions, GatewayFigures], Awaitable[Served]]

_FAILED = 1
_SETTING = 2
_LOG = logging.getLogger(__name__)


class GatewayChild:
    """One child's life, on its event loop."""

    def __init__(self, channel: socket.socket, options: GatewayOptions, open_: Open) -> None:
        self._channel = channel
        self._options = options
        self._open = open_
        self._figures = GatewayFigures()
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        """Serve until it is over, then drain."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        loop.add_signal_handler(signal.SIGTERM, self._is_over.set)
        served = await self._open(self._options, self._figures)
        # The parent says nothing after the options: what can be read is its end.
        loop.add_reader(self._channel.fileno(), self._is_over.set)
        # Before it says that it listens: from then on the parent sends it.
        loop.add_signal_handler(signal.SIGHUP, served.reload)
        say(self._channel, ChildMessage(is_listening=True))
        try:
            with ChildReports(self._channel, served, self._figures):
                await self._is_over.wait()
                loop.remove_reader(self._channel.fileno())
                await drain(served, self._options.drain_s)
        finally:
            await served.close()


def run_child(channel: socket.socket, number: int, open_: Open) -> int:
    """Run a child to its end; return its exit status."""
    try:
        options = receive_options(channel)
    except EOFError:
        return _FAILED
    channel.setblocking(False)
    log_as_json(options.log_level)
    # It tells where it found each endpoint and credential.
    logging.getLogger("botocore").setLevel(max(options.log_level, logging.WARNING))
    for handler in logging.getLogger().handlers:
        handler.addFilter(_number_of(number))
    try:
        allow_descriptors(options.connections_of_process)
        run_loop(GatewayChild(channel, options, open_).run)
    except InvalidInputError as err:
        say(channel, ChildMessage(failed=(err.field, err.problem)))
        return _SETTING
    except Exception:  # noqa: BLE001  whatever it is, the log has it as a line
        _LOG.exception("a process fails")
        return _FAILED
    return 0


def _number_of(number: int) -> Callable[[logging.LogRecord], bool]:
    """Have every line of the log say which process wrote it."""

    def note(record: logging.LogRecord) -> bool:
        record.child = number
        return True

    return note


def main() -> int:
    """Run the child that the command line says."""
    from coldstream.gateway.process.wiring import open_served  # noqa: PLC0415  a test's child has no use for it

    descriptor, number = map(int, sys.argv[1:3])
    # Programs that this one starts must not hold the channel open.
    os.set_inheritable(descriptor, False)
    with socket.socket(fileno=descriptor) as channel:
        return run_child(channel, number, open_served)


def end_process(status: int) -> NoReturn:
    """End this process now. Threads whose calls hang are not waited for, as Python would: everything is closed."""
    logging.shutdown()
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    end_process(main())
