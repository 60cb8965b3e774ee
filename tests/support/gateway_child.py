"""A child of the gateway that serves nothing but words, for tests of its processes.

It says its number to whoever connects, and does as it is told:

    die       end at once
    count     count a takeover
    linger    have the connection stay when it is told to go
    exhaust   have no file descriptor left
    confuse   be unable to say what is cold, and whether the archive answers

With the advertised host `refuse` it finds a setting wrong, with `crash` it has a defect.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
from typing import cast

from coldstream.errors import InvalidSettingError
from coldstream.gateway.cold import ColdRow
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.process.child import end_process, run_child
from coldstream.gateway.process.gateway_process import GatewayProcess
from coldstream.gateway.process.listening import listen_at
from coldstream.gateway.process.options import GatewayOptions


class Talk(asyncio.Protocol):
    def __init__(self, served: WordServer) -> None:
        self.served = served
        self.lingers = self.is_told = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.served.open.append(self)
        self.served.figures.connections_total += 1
        self.transport.write(f"{self.served.number}\n".encode())

    def data_received(self, data: bytes) -> None:
        for word in data.split():
            match word:
                case b"die":
                    os._exit(9)
                case b"count":
                    self.served.figures.takeovers_total += 1
                case b"linger":
                    self.lingers = True
                case b"exhaust":
                    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
                case b"confuse":
                    self.served.is_confused = True
            self.transport.write(b"done\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self.served.open.remove(self)


class WordServer:
    def __init__(self, number: int, figures: GatewayFigures) -> None:
        self.number = number
        self.figures = figures
        self.open: list[Talk] = []
        self.is_confused = False
        self.server: asyncio.Server

    def stop_listening(self) -> None:
        self.server.close()

    def close_some(self, count: int) -> None:
        told = [talk for talk in self.open if not talk.is_told][:count]
        for talk in told:
            talk.is_told = True
            if not talk.lingers:
                talk.transport.write(b"go\n")
                talk.transport.close()

    @property
    def open_connections(self) -> int:
        return len(self.open)

    def reload(self) -> None:
        self.figures.returns_total += 1
        for talk in self.open:
            talk.transport.write(b"again\n")

    def coldest(self, count: int) -> tuple[ColdRow, ...]:
        if self.is_confused:
            raise LookupError("what is cold")
        return (ColdRow("127.0.0.1:1", "/", "заказы", 5, 7),)[:count]

    async def archive_problem(self) -> str | None:
        if self.is_confused:
            raise LookupError("the archive")
        return None

    async def close(self) -> None:
        for talk in self.open:
            talk.transport.abort()


def start_word_child(number: int, options: GatewayOptions) -> GatewayProcess:
    return GatewayProcess(number, options, "tests.support.gateway_child")


def main() -> int:
    descriptor, number = map(int, sys.argv[1:3])
    os.set_inheritable(descriptor, False)

    async def open_words(options: GatewayOptions, figures: GatewayFigures) -> WordServer:
        if options.advertise is not None and options.advertise.host == "refuse":
            raise InvalidSettingError("--advertise", "is refused")
        if options.advertise is not None and options.advertise.host == "crash":
            raise LookupError("a defect")
        served = WordServer(number, figures)
        loop = asyncio.get_running_loop()
        served.server = await loop.create_server(lambda: Talk(served), sock=listen_at(options.listen))
        return served

    with socket.socket(fileno=descriptor) as channel:
        return run_child(channel, number, open_words)


if __name__ == "__main__":
    end_process(main())
