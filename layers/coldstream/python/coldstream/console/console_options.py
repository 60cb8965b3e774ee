"""What may be set of `coldstream console`."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidSettingError
from coldstream.units import MIB

MAX_SESSION_S = 7 * 86_400


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """Options of the console. Times are in seconds, sizes in bytes.

    Without tokens, requests are taken for `host_names` and loopback names alone. With `is_read_only` nobody changes
    anything. `requests_per_s` holds for each token, or each address. A session ends `session_s` after the login.
    `max_download_bytes` is what one answer may have at most; None: any size. A slice of a search looks at
    `slice_bytes`, and takes about `slice_s`.
    """

    host_names: tuple[str, ...] = ()
    is_read_only: bool = False
    requests_per_s: float = 50.0
    session_s: int = 12 * 3600
    max_download_bytes: int | None = None
    slice_bytes: int = 32 * MIB
    slice_s: float = 2.0
    version: str = ""

    def __post_init__(self) -> None:
        """Raise InvalidSettingError for what cannot work."""
        if not 0 < self.session_s <= MAX_SESSION_S:
            raise InvalidSettingError("session", f"must be more than 0 and at most {MAX_SESSION_S} seconds")
        if self.requests_per_s < 0:
            raise InvalidSettingError("requests_per_s", "must be 0, for no limit, or more")
