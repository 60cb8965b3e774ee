"""What is wrong with the agent as a whole, as /status and /readyz tell it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

log = logging.getLogger(__name__)


class AgentProblems:
    """The problems of now, one for each subject, such as `disk`; each is logged once for as long as it stays the same.

    Iterates over their texts.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts.values())

    def report(self, subject: str, text: str, *, bug: Exception | None = None) -> None:
        """Set the problem of a subject; a `bug` is logged with its traceback."""
        if self._texts.get(subject) != text:
            log.error("%s", text, exc_info=bug)
        self._texts[subject] = text

    def clear(self, subject: str) -> None:
        """Note that nothing is wrong with a subject any more."""
        self._texts.pop(subject, None)
