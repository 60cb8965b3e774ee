"""The budget of the scrub function's runs, from its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coldstream.errors import InvalidSettingError
from coldstream.scrub.budget import Budget
from coldstream.units import MIB

DEFAULT_REQUESTS = 20_000
"""Of a run. A HEAD and a GET a fragment make 10,000 fragments, for about a cent."""

DEFAULT_BYTES = 2048 * MIB
"""Of a run: index and trailer of 10,000 fragments, or 2 GiB of a deep scrub."""


@dataclass(frozen=True, slots=True)
class ScrubSettings:
    """The budget of one run. Its time is the function's own."""

    budget: Budget

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ScrubSettings:
        """Read COLDSTREAM_SCRUB_REQUESTS and _BYTES. Raises InvalidSettingError, naming the variable."""
        return cls(
            Budget(
                _number(environment, "COLDSTREAM_SCRUB_REQUESTS", DEFAULT_REQUESTS),
                _number(environment, "COLDSTREAM_SCRUB_BYTES", DEFAULT_BYTES),
            )
        )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name) or str(default)
    if not (text.isascii() and text.isdigit()):
        raise InvalidSettingError(name, f"{text!r} is not a number")
    return int(text)
