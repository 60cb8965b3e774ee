"""What may be set of `coldstream serve`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from coldstream.errors import InvalidSettingError
from coldstream.serve.protocol.content_type import BYTES, ContentType
from coldstream.units import MIB

_ORIGIN = re.compile(r"https?://[a-z0-9.:\[\]-]+", re.ASCII)
MAX_BODY_BYTES = 15 * MIB
"""One request is one chunk in the archive, whose format ends at 16 MiB."""


@dataclass(frozen=True, slots=True)
class ArchivedType:
    """The content type of archived broker streams whose names match a pattern: * and ? as in a shell."""

    pattern: str
    content_type: ContentType

    @classmethod
    def parse(cls, text: str) -> ArchivedType:
        """Parse PATTERN=TYPE. Raises InvalidInputError."""
        pattern, _, content_type = text.rpartition("=")
        if not pattern:
            raise InvalidSettingError("archived_type", f"{text!r} is not PATTERN=TYPE")
        return cls(pattern, ContentType.parse(content_type))


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of the server. Times are in seconds, sizes in bytes.

    `max_open` is how many streams are open at once beside those in use; one that nobody used for `idle_s` is closed.
    `requests_per_s` holds for each token, or each address without tokens, and `max_live_reads` for all together.
    Without tokens, requests are taken for `host_names` and loopback names alone. A body comes within `body_within_s`,
    or its request is given up.
    `takeover_pause_s` is how long a stream stays with the server that took it over, and `check_owner_s` how old the end
    of a stream may be that another server took over. `refresh_s` is how old the end of a stream may be that is only
    read here, as archived ones are. Every `expire_every_s`, streams are looked for whose time is over.
    """

    vhost: str = "/"
    page_bytes: int = 1 * MIB
    max_body_bytes: int = 8 * MIB
    long_poll_s: float = 20.0
    events_s: float = 60.0
    body_within_s: float = 60.0
    requests_per_s: float = 1000.0
    max_live_reads: int = 10_000
    max_open: int = 10_000
    idle_s: float = 300.0
    takeover_pause_s: float = 5.0
    check_owner_s: float = 5.0
    refresh_s: float = 2.0
    expire_every_s: float = 3600.0
    cors_origins: tuple[str, ...] = ()
    host_names: tuple[str, ...] = ()
    archived_types: tuple[ArchivedType, ...] = ()

    def __post_init__(self) -> None:
        """Raise InvalidSettingError for what cannot work."""
        positive = ("page_bytes", "max_body_bytes", "long_poll_s", "events_s", "max_live_reads", "max_open", "idle_s")
        for name in (*positive, "takeover_pause_s", "check_owner_s", "refresh_s", "expire_every_s", "body_within_s"):
            if getattr(self, name) <= 0:
                raise InvalidSettingError(name, "must be more than 0")
        for origin in self.cors_origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise InvalidSettingError("cors_origin", f"{origin!r} is not *, nor as https://example.com is")
        if self.max_body_bytes > MAX_BODY_BYTES:
            raise InvalidSettingError("max_body_bytes", f"is {MAX_BODY_BYTES} at most")
        if self.requests_per_s < 0:
            raise InvalidSettingError("requests_per_s", "must be 0, for no limit, or more")

    def archived_type(self, name: str) -> ContentType:
        """Return the content type of an archived broker stream: that of the first pattern that matches."""
        return next((rule.content_type for rule in self.archived_types if fnmatchcase(name, rule.pattern)), BYTES)
