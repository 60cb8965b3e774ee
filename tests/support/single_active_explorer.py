"""Random histories of a single active consumer, which the broker makes active and inactive."""

from __future__ import annotations

from dataclasses import replace

from coldstream.gateway.frames.keys import Code
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.units import Offset
from tests.support.takeover_explorer import LIMIT, NUMBER, STREAM, ClientSubscription, TakeoverExplorer

GROUP = {"single-active-consumer": "true", "name": "group"}


class SingleActiveExplorer(TakeoverExplorer):
    """While it is active, the consumer gets each chunk from where it said; while it is not, it gets none."""

    intervene_weight = 2.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rig.broker.has_stats = True  # brokers with single active consumers tell their first offset
        self.activations = 0
        self.seen = 0
        self.frozen: int | None = None

    def subscribe(self) -> None:
        if self.wanted is None:
            number = self.rig.subscribe(NUMBER, STREAM, FIRST, self.random.randint(1, 2 * LIMIT), GROUP)
            self.wanted = ClientSubscription(FIRST, number, False, self.is_archived, 0)
            self.frozen = 0

    def unsubscribe(self) -> None:
        """Stay, so that the broker has whom to make active."""

    def intervene(self) -> None:
        """Make the consumer active or inactive, once it has answered."""
        self.answer_updates()
        reader = self.rig.broker.readers.get(NUMBER)
        if reader is not None and not self.rig.broker.updates:
            self.rig.broker.activate(NUMBER, is_active=not reader.is_active)

    def answer_updates(self) -> None:
        for update in self.rig.client.updates[self.seen :]:
            self.seen += 1
            self.check()
            assert self.wanted is not None
            if not update.is_active:
                self.frozen = len(self.rig.client.chunks[NUMBER])
                self.rig.answer_update(update.correlation_id, None)
                continue
            self.activations += 1
            self.frozen = None
            end = self.log.next_offset
            spec = self.random.choice((FIRST, AtOffset(Offset(self.random.randint(0, end)))))
            self.rig.client.chunks[NUMBER] = []
            self.wanted = replace(self.wanted, spec=spec, is_archived=self.is_archived, end=end)
            self.rig.answer_update(update.correlation_id, spec)

    def notice_ends(self) -> None:
        super().notice_ends()
        if self.wanted is not None and self.rig.client.codes.get(self.wanted.correlation_id) == Code.OK:
            self.answer_updates()
        if self.frozen is not None:
            assert len(self.rig.client.chunks[NUMBER]) == self.frozen, "a chunk for one that is not active"

    def check_end(self) -> None:
        if self.frozen is None:
            super().check_end()
