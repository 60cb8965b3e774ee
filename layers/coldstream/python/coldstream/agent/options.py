"""The options of the agent, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from coldstream import units
from coldstream.agent.rules import Rules
from coldstream.archive.borders import QuietSpans
from coldstream.archive.segment_rolled import MAX_CUT_EVERY_MS, MAX_MIN_BYTES
from coldstream.errors import InvalidSettingError
from coldstream.live.address import BrokerAddress
from coldstream.units import MIB

MIN_MAX_LAG_S = 3
MAX_MAX_LAG_S = 24 * 3600
MIN_SCAN_S = 0.01
MAX_SCAN_S = 3600
MIN_SEGMENT_BYTES = 1000
MAX_SEGMENT_BYTES = 3_000_000_000
"""The broker's own limit: positions in a segment have 32 bits."""


class SegmentSource(StrEnum):
    """Where the agent gets segments from."""

    DISK = "disk"
    PROTOCOL = "protocol"


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Options of the agent. Times are in seconds, sizes in bytes.

    `data` is the broker's directory of streams, and `state` the agent's own directory; the disk source needs both on
    one file system. `streams` are pairs of vhost and name that the protocol source records beside those that the
    management API lists. `release_below_bytes` is the free space below which pins are released although they are not
    archived; None keeps them whatever happens. `cluster` is the cluster that the agent announces for; None leaves that
    to COLDSTREAM_CLUSTER. `unseen` is the reason of what a stream had before all that is archived; None says that
    retention has deleted it. With `quiet_span_s`, a stream that brings less than `quiet_below_bytes` in so long gets a
    slice only then, and the recovery log keeps the max-lag.
    """

    state: Path
    broker: BrokerAddress
    data: Path | None = None
    source: SegmentSource = SegmentSource.DISK
    management: str | None = None
    streams: tuple[tuple[str, str], ...] = ()
    rules: Rules = field(default_factory=Rules)
    max_lag_s: float | None = None
    quiet_span_s: float | None = None
    quiet_below_bytes: int = MIB
    scan_s: float = 10.0
    uploads: int = 4
    bandwidth_bytes_per_s: float | None = None
    release_below_bytes: int | None = None
    segment_bytes: int = 64 * MIB
    max_spool_bytes: int = 1024 * MIB
    listen_host: str = "127.0.0.1"
    listen_port: int = 9478
    cluster: str | None = None
    unseen: str | None = None

    def __post_init__(self) -> None:
        if self.source is SegmentSource.DISK and self.data is None:
            raise InvalidSettingError("--data", "is missing: the broker's directory of streams, …/mnesia/<node>/stream")
        if self.source is SegmentSource.PROTOCOL and not self.streams and self.management is None:
            raise InvalidSettingError("--source protocol", "needs --management, or a --stream for each stream")
        if self.max_lag_s is not None and not MIN_MAX_LAG_S <= self.max_lag_s <= MAX_MAX_LAG_S:
            raise InvalidSettingError("--max-lag", f"must be from {MIN_MAX_LAG_S} s to {MAX_MAX_LAG_S} s")
        self._check_quiet()
        if not MIN_SCAN_S <= self.scan_s <= MAX_SCAN_S:
            raise InvalidSettingError("--scan", f"must be from {MIN_SCAN_S:g} s to {MAX_SCAN_S} s")
        if self.bandwidth_bytes_per_s is not None and self.bandwidth_bytes_per_s <= 0:
            raise InvalidSettingError("--bandwidth", "must be more than 0; leave it out for no limit")
        if not MIN_SEGMENT_BYTES <= self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise InvalidSettingError(
                "--segment-size", f"must be from {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES} bytes"
            )
        if self.max_spool_bytes < self.segment_bytes:
            raise InvalidSettingError("--max-spool", "must be at least --segment-size")
        if self.data is not None and self.state.is_relative_to(self.data):
            raise InvalidSettingError("--state", f"must be outside of the broker's directory {self.data}")

    @property
    def cut_every_ms(self) -> int | None:
        """The span between time borders, None without a max-lag.

        It is a third of the max-lag: a message waits for the end of its span, the archiver then waits for another span,
        and the last third is for staging and announcing.
        """
        return None if self.max_lag_s is None else int(self.max_lag_s * 1000 / 3)

    @property
    def archive_lag_s(self) -> float | None:
        """The time within which everything is archived, None without a max-lag: of a quiet stream, its span more."""
        return None if self.max_lag_s is None else self.max_lag_s + (self.quiet_span_s or 0)

    @property
    def quiet(self) -> QuietSpans | None:
        """The spans of quiet streams, None if they are those of all."""
        if self.quiet_span_s is None:
            return None
        return QuietSpans(self.quiet_below_bytes, int(self.quiet_span_s * 1000))

    def _check_quiet(self) -> None:
        quiet, every_ms = self.quiet, self.cut_every_ms
        if quiet is None:
            return
        if every_ms is None:
            raise InvalidSettingError("--quiet-span", "needs --max-lag, which the recovery log keeps")
        if self.source is not SegmentSource.DISK:
            raise InvalidSettingError("--quiet-span", "needs the disk source, which keeps what waits for its slice")
        if not every_ms <= quiet.every_ms <= MAX_CUT_EVERY_MS:
            raise InvalidSettingError(
                "--quiet-span", f"must be from a third of --max-lag to {MAX_CUT_EVERY_MS // 1000} s"
            )
        if not 1 <= quiet.min_bytes <= MAX_MIN_BYTES:
            raise InvalidSettingError("--quiet-below", f"must be from 1 to {MAX_MIN_BYTES} bytes")

    def environment(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment, with the values that the options override."""
        return environment if self.cluster is None else {**environment, "COLDSTREAM_CLUSTER": self.cluster}

    def shown(self) -> tuple[tuple[str, str], ...]:
        """Return the options that were given, by name, but no passwords."""
        given = {
            "source": self.source,
            "cluster": self.cluster,
            "data": self.data,
            "state": self.state,
            "max-lag": None if self.max_lag_s is None else f"{self.max_lag_s:g} s",
            "quiet-span": None if self.quiet_span_s is None else f"{self.quiet_span_s:g} s",
            "quiet-below": None if self.quiet_span_s is None else f"{self.quiet_below_bytes} bytes",
            "scan": f"{self.scan_s:g} s",
            "uploads": self.uploads,
            "bandwidth": self.bandwidth_bytes_per_s,
            "release-pins-below": self.release_below_bytes,
            "include": " ".join(self.rules.include) or None,
            "exclude": " ".join(self.rules.exclude) or None,
            "include-vhost": " ".join(self.rules.include_vhost) or None,
            "exclude-vhost": " ".join(self.rules.exclude_vhost) or None,
        }
        return tuple((name, str(value)) for name, value in given.items() if value is not None)


def parse_duration(option: str, text: str) -> float:
    """Parse a duration, such as 60s, 5m or 0.5h; a number alone is seconds. Raises InvalidSettingError."""
    try:
        return units.parse_duration(text)
    except ValueError as err:
        raise InvalidSettingError(option, str(err)) from err


def parse_size(option: str, text: str) -> int:
    """Parse a size, such as 500MB or 2GiB, into bytes. Raises InvalidSettingError."""
    try:
        return units.parse_size(text)
    except ValueError as err:
        raise InvalidSettingError(option, str(err)) from err
