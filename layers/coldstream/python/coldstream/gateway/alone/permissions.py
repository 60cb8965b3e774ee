"""Permissions: who may read and write which streams, by patterns.

A file has a line for each:

    user, a pattern of vhosts, a pattern of streams, rights (r, w or rw)

Patterns are those of a shell: *, ? and [abc]; a * matches slashes, too. The user * is everybody. A word with blanks
stands in quotes. Empty lines and those that begin with # are nothing. Whoever has any right in a vhost may open it. To
write is also to create and to delete.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol, Self

from coldstream.errors import InvalidSettingError
from coldstream.web.access_tokens import Right

_FIELDS = 4
_RIGHTS = {"r": Right.READ, "w": Right.WRITE, "rw": Right.READ | Right.WRITE}
_EVERYBODY = "*"


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """One line."""

    user: str
    vhosts: str
    streams: str
    rights: Right


class PermissionSource(Protocol):
    """Permissions that may change."""

    @property
    def current(self) -> StreamPermissions:
        """The permissions that count now: the same object until they change."""
        ...

    def look(self) -> None:
        """See whether they have changed. Blocks."""
        ...


@dataclass(frozen=True, slots=True)
class StreamPermissions:
    """All rules. `READ_ALL` and `ALL` are those without a file."""

    rules: tuple[PermissionRule, ...]

    @classmethod
    def parse(cls, lines: Iterable[str]) -> StreamPermissions:
        """Read a file of permissions. Raises InvalidSettingError, which names the line."""
        rules = []
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            try:
                fields = shlex.split(line)
            except ValueError as err:
                raise InvalidSettingError("permissions_file", f"line {number}: {err}") from err
            if len(fields) != _FIELDS or fields[3] not in _RIGHTS:
                raise InvalidSettingError("permissions_file", f"line {number} is not USER VHOSTS STREAMS r|w|rw")
            rules.append(PermissionRule(fields[0], fields[1], fields[2], _RIGHTS[fields[3]]))
        if not rules:
            raise InvalidSettingError("permissions_file", "has no rule: nobody could do anything")
        return cls(tuple(rules))

    @property
    def current(self) -> Self:
        """Itself: see PermissionSource."""
        return self

    def look(self) -> None:
        """Do nothing: see PermissionSource."""

    def may_open(self, user: str, vhost: str) -> bool:
        """Tell whether a user may open a vhost."""
        return any(True for _ in self._of(user, vhost))

    def may(self, right: Right, user: str, vhost: str, stream: str) -> bool:
        """Tell whether a user may read, or write, a stream."""
        return any(right in rule.rights and fnmatchcase(stream, rule.streams) for rule in self._of(user, vhost))

    def _of(self, user: str, vhost: str) -> Iterable[PermissionRule]:
        for rule in self.rules:
            if rule.user in {user, _EVERYBODY} and fnmatchcase(vhost, rule.vhosts):
                yield rule


READ_ALL = StreamPermissions((PermissionRule(_EVERYBODY, "*", "*", Right.READ),))
ALL = StreamPermissions((PermissionRule(_EVERYBODY, "*", "*", Right.READ | Right.WRITE),))
