"""What may be set of archive-only mode."""

from __future__ import annotations

from dataclasses import dataclass, field

from coldstream.errors import InvalidSettingError
from coldstream.gateway.gap_rules import GapRules
from coldstream.units import MIB

LEAST_FRAME_BYTES = 8192
_MAX_PORT = 0xFFFF


@dataclass(frozen=True, slots=True)
class AloneOptions:
    """Options of a server that answers alone. Times are in seconds, sizes in bytes.

    Clients are told to reach every stream at `advertised_host` and `advertised_port`; an empty host stands for where
    they have reached this server. `gaps` say what becomes of a subscription at offsets that nobody has.
    A login comes within `login_within_s`. A client without heartbeats, publishers and subscriptions is let go after
    `idle_s`. A question to the archive is given up after `request_within_s`. A connection that has `max_pending_bytes`
    published and not confirmed is not read from, and so is every one that publishes while all together have
    `max_pending_total_bytes`. No chunk is taken from the archive while `max_sending_bytes` are taken and not sent.

    With `creates_streams`, Create makes a direct stream. One that nobody has published to for `close_after_s` is
    closed. A stream that another process took over is left to it for `takeover_pause_s`. Messages of a publisher that
    come within `gather_s` are appended as one batch.

    A single active consumer whose process dies is followed by the next one after `lease_s` and a quarter, and up to
    two `turns_every_s`. The tail of a stream that another process writes is looked for at most every `poll_s`. A client
    that takes nothing of what is sent to it is let go after `stuck_s`, and one that does not answer after `answer_s`.

    `super_streams` are patterns of names: the archived streams NAME-0, NAME-1 and so on are the partitions of a super
    stream NAME that one of them matches. Super streams that have a map in the archive need no pattern.
    """

    advertised_host: str = "127.0.0.1"
    advertised_port: int = 5552
    frame_max_bytes: int = MIB
    heartbeat_s: int = 60
    login_within_s: float = 10.0
    idle_s: float = 600.0
    request_within_s: float = 30.0
    max_connections: int = 10_000
    max_pending_bytes: int = 8 * MIB
    max_pending_total_bytes: int = 256 * MIB
    max_sending_bytes: int = 64 * MIB
    creates_streams: bool = False
    close_after_s: float = 300.0
    takeover_pause_s: float = 5.0
    gather_s: float = 0.005
    gaps: GapRules = field(default_factory=GapRules)
    lease_s: float = 15.0
    turns_every_s: float = 2.0
    poll_s: float = 2.0
    stuck_s: float = 300.0
    answer_s: float = 60.0
    super_streams: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise InvalidSettingError for what cannot work."""
        if not 0 <= self.advertised_port <= _MAX_PORT:
            raise InvalidSettingError("advertised", f"{self.advertised_host}:{self.advertised_port} is no address")
        if not LEAST_FRAME_BYTES <= self.frame_max_bytes <= 8 * MIB:
            raise InvalidSettingError("frame_max", f"{self.frame_max_bytes} is not {LEAST_FRAME_BYTES} to 8 MiB")
        if self.heartbeat_s < 0:
            raise InvalidSettingError("heartbeat", "is less than 0")
        positive = ("login_within_s", "idle_s", "request_within_s", "max_connections", "max_pending_bytes", "lease_s")
        for name in (
            *positive,
            "max_pending_total_bytes",
            "max_sending_bytes",
            "close_after_s",
            "turns_every_s",
            "poll_s",
            "stuck_s",
            "answer_s",
        ):
            if getattr(self, name) <= 0:
                raise InvalidSettingError(name, "must be more than 0")
