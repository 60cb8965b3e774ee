"""What the agent shows of itself: snapshots, which its HTTP server hands out and `coldstream agent status` reads."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from coldstream.errors import UnavailableError
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """One stream of this node, at one moment.

    `vhost` and `name` are None until they are proven. The pins hold offsets `disk_from` up to, not including,
    `disk_to`; below `committed_to` everything is known to be committed, below `archived_to` the manifest has it, None
    while it has nothing. `orphaned_bytes`, a part of `pinned_bytes`, are on the disk for the sake of the pins alone:
    the broker has deleted its own. `oldest_unarchived_at` is the timestamp of the oldest chunk that is not archived,
    `retention_left_s` how long until the broker deletes its segment; None where there is none, or it is not known.
    Before `complete_from` offsets are missing for good, and `incomplete_because` says why those right before it are.
    """

    incarnation: Incarnation
    vhost: str | None
    name: str | None
    state: str
    disk_from: Offset
    disk_to: Offset
    committed_to: Offset | None
    archived_to: Offset | None
    pinned_segments: int
    pinned_bytes: int
    orphaned_bytes: int
    oldest_unarchived_at: TimestampMs | None = None
    retention_left_s: float | None = None
    last_failure: str | None = None
    complete_from: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    incomplete_because: str | None = None

    @property
    def labels(self) -> tuple[str, str]:
        """The stream's vhost and name in metrics; no vhost, and the incarnation for a name, while it has none."""
        if self.vhost is None or self.name is None:
            return "", self.incarnation
        return self.vhost, self.name

    @property
    def lag_offsets(self) -> int:
        """Offsets on this disk that are not archived."""
        return max(0, self.disk_to - max(self.archived_to or 0, self.disk_from))

    def lag_s(self, now: TimestampMs) -> float | None:
        """Return the age of the oldest chunk that is not archived, 0 when all are; None where it is not known."""
        if self.lag_offsets == 0:
            return 0.0
        return None if self.oldest_unarchived_at is None else max(0.0, (now - self.oldest_unarchived_at) / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """The agent, at one moment.

    `disk_*_bytes` are of the state directory's file system. `problems` are what is wrong with the agent as a whole just
    now, in words; `settings` what it was told, without secrets. `refused_streams` are those that the broker's user may
    not read, `is_login_refused` says that it takes neither user nor password. `aws_contact_at` and
    `broker_contact_at` are when each last answered: AgentMetrics knows, and fills them in.
    """

    at: TimestampMs
    started_at: TimestampMs
    version: str
    host: str
    disk_free_bytes: int
    disk_total_bytes: int
    max_lag_s: float | None
    problems: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]
    streams: tuple[StreamStatus, ...]
    refused_streams: int = 0
    is_login_refused: bool = False
    aws_contact_at: TimestampMs | None = None
    broker_contact_at: TimestampMs | None = None

    def to_json(self) -> bytes:
        """Write it as JSON, in UTF-8."""
        return _ADAPTER.dump_json(self)

    @classmethod
    def from_json(cls, text: bytes, *, source: str) -> AgentStatus:
        """Read it, passing over members that this release does not know. Raises UnavailableError, naming `source`."""
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError as err:
            first = err.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "it"
            raise UnavailableError(f"{source} answered what is not an agent's status: {where}: {first['msg']}") from err


_ADAPTER = TypeAdapter(AgentStatus)
