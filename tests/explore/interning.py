"""Numbers for values: equal values get one number, so that states are short tuples of numbers and compare at once."""

from __future__ import annotations

from collections.abc import Hashable


class Numbered:
    """Values by number, and numbers by value."""

    def __init__(self) -> None:
        self.values: list[Hashable] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, value: Hashable) -> int:
        """Return the number of a value, a new one for a value that has none."""
        return self.number_as(value, value)

    def number_as(self, key: Hashable, value: object) -> int:
        """Return the number of the value that `key` stands for."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(value)  # type: ignore[arg-type]
        return found

    def known(self, key: Hashable) -> int | None:
        """Return the number of the value that `key` stands for, None if it has none yet."""
        return self._numbers.get(key)

    def __len__(self) -> int:
        return len(self.values)
