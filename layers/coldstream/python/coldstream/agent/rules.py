"""Which streams are archived."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from coldstream.manifest.stream import StreamId


@dataclass(frozen=True, slots=True)
class Rules:
    """Patterns as of a shell (`*`, `?`, `[…]`) for names and vhosts; empty includes take everything.

    A stream is archived when an include matches its vhost, an include matches its name, and no exclude matches either.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    include_vhost: tuple[str, ...] = ()
    exclude_vhost: tuple[str, ...] = ()

    def take(self, stream: StreamId) -> bool:
        """Tell whether a stream is to be archived."""
        return self.take_vhost(stream.vhost) and _passes(stream.name, self.include, self.exclude)

    def take_vhost(self, vhost: str) -> bool:
        """Tell whether streams of a vhost may be archived."""
        return _passes(vhost, self.include_vhost, self.exclude_vhost)


def _passes(text: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> bool:
    if any(fnmatchcase(text, pattern) for pattern in exclude):
        return False
    return not include or any(fnmatchcase(text, pattern) for pattern in include)
