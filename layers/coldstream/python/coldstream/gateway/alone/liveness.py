"""Whether a client is there: heartbeats both ways, and the bounds of patience. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

_SILENT_HEARTBEATS = 2


class LivenessVerdict(Enum):
    """What is to be done."""

    NOTHING = auto()
    BEAT = auto()
    """Send a heartbeat."""
    SILENT = auto()
    STUCK = auto()
    IDLE = auto()


@dataclass(slots=True)
class Liveness:
    """What one connection has sent and taken, looked at once a second. `heartbeat_s` is what was agreed, 0 for none."""

    idle_s: float
    stuck_s: float
    now: float
    heartbeat_s: int = 0
    _read_bytes: int = 0
    _sent_bytes: int = 0
    _read_at: float = 0.0
    _sent_at: float = 0.0
    _full_since: float | None = None
    _taken_bytes: int = 0

    def __post_init__(self) -> None:
        self._read_at = self._sent_at = self.now

    def look(
        self,
        now: float,
        *,
        read_bytes: int,
        sent_bytes: int,
        unsent_bytes: int,
        is_full: bool,
        is_held: bool,
        is_used: bool,
    ) -> LivenessVerdict:
        """Take note of the totals, and decide. Of `sent_bytes`, so many are `unsent_bytes`, as the socket is full.

        A client that is left unread (`is_held`) cannot be heard. One that is `is_used` has publishers or subscriptions.
        """
        if read_bytes != self._read_bytes or is_held:
            self._read_bytes, self._read_at = read_bytes, now
        if sent_bytes != self._sent_bytes:
            self._sent_bytes, self._sent_at = sent_bytes, now
        if is_full:
            # It is not read either, as it takes no answers.
            self._read_at = now
            # One that takes something, however slowly, is not stuck.
            taken_bytes = sent_bytes - unsent_bytes
            if self._full_since is None or taken_bytes != self._taken_bytes:
                self._full_since, self._taken_bytes = now, taken_bytes
            return LivenessVerdict.STUCK if now - self._full_since > self.stuck_s else LivenessVerdict.NOTHING
        self._full_since = None
        if not self.heartbeat_s:
            is_idle = not is_used and now - self._read_at > self.idle_s
            return LivenessVerdict.IDLE if is_idle else LivenessVerdict.NOTHING
        # A second more of patience, and beats twice as often as agreed: this is called once a second.
        if now - self._read_at > _SILENT_HEARTBEATS * self.heartbeat_s + 1:
            return LivenessVerdict.SILENT
        return LivenessVerdict.BEAT if now - self._sent_at >= self.heartbeat_s / 2 else LivenessVerdict.NOTHING
