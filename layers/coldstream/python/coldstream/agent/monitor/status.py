"""The agent's status: snapshots that its HTTP server hands out and `coldstream agent status` reads."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from coldstream.errors import UnavailableError
from coldstream.manifest.stream import Incarnation
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """One stream of this node, at one moment.

    `vhost` and `name` are None until they are proven. The pins hold the offsets from `disk_from` up to, not including,
    `disk_to`. Everything below `committed_to` is known to be committed. Everything below `archived_to` is in the
    manifest; None if nothing is. `orphaned_bytes`, a part of `pinned_bytes`, are those of files that the broker has
    deleted. `oldest_unarchived_at` is the timestamp of the oldest chunk that is not archived, and `retention_left_s`
    the time until the broker deletes its segment; None if there is none, or if it is not known. Offsets before
    `complete_from` are missing for good, and `incomplete_because` says why those right before it are.
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
        """The stream's vhost and name in metrics: an empty vhost and the incarnation while its names are not known."""
        if self.vhost is None or self.name is None:
            return "", self.incarnation
        return self.vhost, self.name

    @property
    def lag_offsets(self) -> int:
        """Offsets on this disk that are not archived."""
        return max(0, self.disk_to - max(self.archived_to or 0, self.disk_from))

    def lag_s(self, now: TimestampMs) -> float | None:
        """Return the age of the oldest chunk that is not archived, 0 if all are; None if it is not known."""
        if self.lag_offsets == 0:
            return 0.0
        return None if self.oldest_unarchived_at is None else max(0.0, (now - self.oldest_unarchived_at) / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """The agent, at one moment.

    `disk_*_bytes` are of the state directory's file system. `problems` are what is wrong with the agent as a whole now,
    in words, and `settings` its options, without secrets. `refused_streams` counts the streams that the broker's user
    may not read; `is_login_refused` says that the broker refuses user or password. `aws_contact_at` and
    `broker_contact_at` are when each last answered: AgentMetrics fills them in. `log_objects` are those that this node
    keeps in the recovery log, None if it has none, and what was committed at `logged_at` is archived, logged, or a
    slice on its way. `max_lag_s` is the time within which everything is archived, None if there is none.
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
    log_objects: int | None = None
    logged_at: TimestampMs | None = None
    aws_contact_at: TimestampMs | None = None
    broker_contact_at: TimestampMs | None = None

    def to_json(self) -> bytes:
        """Encode it as JSON, in UTF-8."""
        return _ADAPTER.dump_json(self)

    @classmethod
    def from_json(cls, text: bytes, *, source: str) -> AgentStatus:
        """Parse JSON; members that this release does not know are ignored. Raises UnavailableError, naming `source`."""
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError as err:
            first = err.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "it"
            raise UnavailableError(f"{source} answered what is not an agent's status: {where}: {first['msg']}") from err


_ADAPTER = TypeAdapter(AgentStatus)
