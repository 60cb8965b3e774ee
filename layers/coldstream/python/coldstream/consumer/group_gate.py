"""The order of keys in a group: a child waits for what the group has committed of its parent, whoever reads that."""

from __future__ import annotations

from collections.abc import Mapping

from coldstream.consumer.key_gate import KeyGate
from coldstream.units import Offset


class GroupKeyGate(KeyGate):
    """Holds a partition's chunks back until its parents are committed up to their seals. Implements `Gate`.

    What this member has read of a parent counts for nothing: if it dies, somebody reads that again.
    """

    def add(self, number: int, offset: Offset) -> None:
        """Do nothing: only commits count."""

    def finish(self, number: int) -> None:
        """Do nothing: only commits count."""

    def leave_out(self, number: int) -> None:
        """Let those go on that wait for a partition that nobody reads: the start lies after it."""
        super().finish(number)

    def committed(self, offsets: Mapping[int, Offset]) -> None:
        """Learn what the group has committed."""
        for number, offset in offsets.items():
            super()._read_to(number, offset)

    @property
    def holds_back(self) -> bool:
        """Tell whether anybody waits here."""
        return bool(self._waiting)

    def _read_to(self, number: int, offset: Offset) -> None:
        pass
