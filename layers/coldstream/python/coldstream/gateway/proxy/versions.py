"""Which keys both the gateway and somebody else know, and which ones a broker does."""

from __future__ import annotations

import re
from typing import Final

from coldstream.gateway.frames.keys import VERSIONS, Key

Commands = tuple[tuple[int, int, int], ...]
"""Key, least version, greatest version: as ExchangeCommandVersions has them."""

_SINCE: Final[dict[Key, tuple[int, int]]] = {
    Key.CONSUMER_UPDATE: (3, 11),
    Key.EXCHANGE_COMMAND_VERSIONS: (3, 11),
    Key.STREAM_STATS: (3, 11),
    Key.CREATE_SUPER_STREAM: (3, 13),
    Key.DELETE_SUPER_STREAM: (3, 13),
    Key.RESOLVE_OFFSET_SPEC: (4, 3),
}
NEWEST_RELEASE: Final = (4, 3)
"""The newest RabbitMQ that is known to know no key, in no version, that the gateway does not know."""

_SECOND = 2
_SECOND_SINCE: Final[dict[Key, tuple[int, int]]] = {Key.DELIVER: (3, 11), Key.PUBLISH: (3, 13)}
_NEVER = (1 << 16, 0)
_RELEASE = re.compile(r"(\d{1,4})\.(\d{1,4})")


def known_to_both(theirs: Commands) -> Commands:
    """Return the keys that the gateway knows as well, each in the versions that both know.

    A client that is told of more would send frames that the gateway cannot read, and so would a broker.
    """
    both: list[tuple[int, int, int]] = []
    for key, least, greatest in theirs:
        ours = VERSIONS.get(Key(key)) if key in Key._value2member_map_ else None
        if ours is not None and max(least, ours[0]) <= min(greatest, ours[1]):
            both.append((key, max(least, ours[0]), min(greatest, ours[1])))
    return tuple(both)


class BrokerAbilities:
    """What a broker knows, by what it has said on this connection."""

    __slots__ = ("_told", "release")

    def __init__(self) -> None:
        self._told: dict[int, tuple[int, int]] | None = None
        self.release: tuple[int, int] = (0, 0)
        """Its version; 0.0 if it has not said it."""

    @property
    def is_known(self) -> bool:
        """Tell whether it has said to be of a release that knows nothing more than the gateway.

        What it is asked for can then be left to it, whatever that is.
        """
        return (0, 0) < self.release <= NEWEST_RELEASE

    def take_version(self, text: str) -> None:
        """Note its version, such as `4.0.5`."""
        found = _RELEASE.match(text)
        if found:
            self.release = int(found[1]), int(found[2])

    def take_commands(self, commands: Commands) -> None:
        """Note what it tells of its keys."""
        self._told = {key: (least, greatest) for key, least, greatest in commands}

    def has(self, key: Key, version: int = 1) -> bool:
        """Tell whether it knows a key in a version: by what it has told, or else by its own version."""
        if key is Key.CONSUMER_UPDATE and version == 1:
            # Brokers tell only what clients may ask. This question is theirs, and came with the exchange of versions.
            return self._told is not None or self.release >= _SINCE[key]
        if self._told is not None:
            least, greatest = self._told.get(key, (1, 0))
            return least <= version <= greatest
        if version == 1:
            return self.release >= _SINCE.get(key, (0, 0))
        return version == _SECOND and self.release >= _SECOND_SINCE.get(key, _NEVER)
