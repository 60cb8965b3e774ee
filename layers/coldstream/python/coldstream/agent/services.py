"""What the archivers of all streams share."""

from __future__ import annotations

from dataclasses import dataclass, field

from coldstream.agent.archive import ArchiveClient
from coldstream.agent.monitor.metrics import AgentMetrics
from coldstream.agent.proof.broker import BrokerProver
from coldstream.agent.proof.namesakes import Namesakes
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.rules import Rules
from coldstream.agent.upload_slots import UploadSlots
from coldstream.archive.borders import QuietSpans


@dataclass(frozen=True, slots=True)
class Services:
    """The archive, the broker, and everything else that exists once for all of them.

    The archivers look at the disk every `scan_s` at the latest. `every_ms` is the span of time borders, None without a
    max-lag, and `quiet` are those of quiet streams. `host` is this node's name, for the reasons of losses, and `unseen`
    the reason of what lies before everything archived. With `takes_turns` a slice is left to the agent beside the
    stream's leader for a while.
    """

    archive: ArchiveClient
    broker: BrokerProver
    naming: StreamListing
    slots: UploadSlots
    rules: Rules
    metrics: AgentMetrics
    scan_s: float
    every_ms: int | None
    host: str
    unseen: str | None = None
    takes_turns: bool = True
    quiet: QuietSpans | None = None
    namesakes: Namesakes = field(default_factory=Namesakes)
