"""The rules that say which streams are archived."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Rules:
    """Shell patterns (`*`, `?`, `[…]`) for names and vhosts. Empty includes take everything.

    A stream is archived if an include matches its vhost, an include matches its name, and no exclude matches either.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    include_vhost: tuple[str, ...] = ()
    exclude_vhost: tuple[str, ...] = ()

    def takes(self, vhost: str, name: str) -> bool:
        """Tell whether a stream is to be archived."""
        return self.takes_vhost(vhost) and _passes(name, self.include, self.exclude)

    def takes_vhost(self, vhost: str) -> bool:
        """Tell whether streams of a vhost may be archived."""
        return _passes(vhost, self.include_vhost, self.exclude_vhost)


def _passes(text: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> bool:
    if any(fnmatchcase(text, pattern) for pattern in exclude):
        return False
    return not include or any(fnmatchcase(text, pattern) for pattern in include)
