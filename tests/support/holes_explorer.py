"""Random histories of a stream of which chunks are never archived, or late, for a client that skips gaps."""

from __future__ import annotations

from coldstream.format.chunk import Chunk
from coldstream.gateway.frames.requests import Subscribe
from coldstream.gateway.gap_rules import GapAction, GapRules
from coldstream.gateway.takeover.options import TakeoverOptions
from coldstream.gateway.takeover.questions import EVERY_CHUNK
from coldstream.manifest.spec import AtOffset
from tests.support.fake_stream_broker import FakeLog, delivered
from tests.support.takeover_explorer import LIMIT, NUMBER, STREAM, ClientSubscription, TakeoverExplorer
from tests.support.takeover_rig import TakeoverRig


class HolesExplorer(TakeoverExplorer):
    """What was archived when the client subscribed, it gets, and what the broker has kept all the while.

    The latter only from where the broker reads for it: it skips gaps of the archive before that.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        options = TakeoverOptions(
            GapRules(otherwise=GapAction.SKIP),
            archive_wait_s=0,
            archive_poll_s=0,
            question_s=1000,
            max_upstream_credits=LIMIT,
        )
        log = self.log
        self.rig = TakeoverRig(has_stats=self.rig.broker.has_stats, version=self.rig.broker.version, options=options)
        self.rig.broker.logs[STREAM] = log
        self.had: set[int] = set()  # ids of chunks that were archived when the client subscribed

    def archive(self, *, everything: bool = False) -> None:
        super().archive(everything=everything)
        archive = self.rig.history.archives.get(("/", STREAM))
        if archive is not None and archive.chunks:
            first = archive.chunks[0]
            archive.chunks[:] = [one for one in archive.chunks if one is first or one.header.chunk_id % 60 < 40]

    def subscribe(self) -> None:
        if self.wanted is None:
            archive = self.rig.history.archives.get(("/", STREAM))
            self.had = set() if archive is None else {int(one.header.chunk_id) for one in archive.chunks}
            super().subscribe()

    def reads_from(self) -> int:
        """Return the offset from which on the broker reads for the client."""
        requests = [one for one in self.rig.broker.requests if isinstance(one, Subscribe)]
        mine = [one for one in requests if one.subscription_id == NUMBER and EVERY_CHUNK not in one.properties.items()]
        return mine[-1].spec.offset if isinstance(mine[-1].spec, AtOffset) else 0

    def compare(self, received: list[bytes], expected: list[Chunk], log: FakeLog, wanted: ClientSubscription) -> None:
        rest = iter(expected)
        attached = self.reads_from()
        for one in received:
            for chunk in rest:
                if delivered(chunk) == one:
                    break
                missing = chunk.header.chunk_id
                if wanted.has_filter and missing in log.hidden:
                    continue
                assert missing not in self.had, "an archived chunk is missing"
                at_broker = log.first is not None and log.first.chunk_id <= missing
                assert not (at_broker and missing >= attached), "a chunk is missing that the broker has sent"
            else:
                raise AssertionError("a chunk twice, or out of order")
