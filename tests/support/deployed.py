"""A deployed archive, as an agent and a consumer have it."""

from __future__ import annotations

from pathlib import Path

from coldstream.archive.envelope import DETAIL_TYPE, SOURCE
from coldstream.archive.events import detail_of
from coldstream.ingest.bus import EventBridgeBus
from coldstream.ingest.stage import find_rolled, stage
from coldstream.local.stack import EmulatedStack
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.read.client import ResolverClient
from coldstream.store.keys import Keys
from coldstream.store.objects import S3Objects
from tests.support.golden import GoldenLog

SETTLE_S = 60


class DeployedArchive:
    """The resources and functions of a running stack. The SDK's environment has to be the stack's, too."""

    def __init__(self, stack: EmulatedStack) -> None:
        settings = stack.environment
        self.stack = stack
        self.objects = S3Objects(settings["COLDSTREAM_BUCKET"])
        self.table_name = settings["COLDSTREAM_TABLE"]
        self.keys = Keys(settings.get("COLDSTREAM_PREFIX", ""))
        self.bus_name = settings["COLDSTREAM_EVENT_BUS"]
        self.bus = EventBridgeBus(self.bus_name)
        self.resolver = ResolverClient(stack.resolver_url)

    def announce(self, directory: Path, stream: StreamId) -> int:
        """Stage and announce what has rolled in a stream's directory; return how many segments that is."""
        rolled = find_rolled(directory)
        for slice_ in rolled:
            segment = stage(slice_, stream, self.objects, self.keys)
            self.bus.put(source=SOURCE, detail_type=DETAIL_TYPE, detail=detail_of(segment))
        return len(rolled)

    def settle(self) -> None:
        """Wait until everything that was announced is handled. Raises UnavailableError when that takes too long."""
        self.stack.wait_idle(SETTLE_S)


def stream_of(log: GoldenLog) -> StreamId:
    """Return the names of a recorded stream."""
    return StreamId(log.vhost, log.stream, incarnation(log.incarnation))
