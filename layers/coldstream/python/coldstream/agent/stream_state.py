"""The states of a stream on this node, as `status` shows them."""

from __future__ import annotations

from enum import StrEnum


class StreamState(StrEnum):
    """What the agent is doing with a stream, or why it does nothing."""

    STARTING = "starting"
    """Nothing is known yet."""

    EMPTY = "empty"
    """It has no message, so it cannot be named yet."""

    UNNAMED = "unnamed"
    """It is pinned, and it is not known yet which stream it is."""

    REFUSED = "refused"
    """The broker's user may not read it."""

    FOLLOWING = "following"
    """Everything that can be archived now is archived."""

    WAITING = "waiting"
    """A slice waits for an upload slot, or for the agent beside another replica to stage it."""

    STAGING = "staging"
    """A slice is being sent."""

    ANNOUNCED = "announced"
    """A slice waits for the upload function."""

    EXCLUDED = "excluded"
    """The rules do not take it; nothing of it is kept."""

    DELETED = "deleted"
    """The broker has deleted it, and everything that was pinned is archived or recorded as lost."""

    @property
    def is_final(self) -> bool:
        """Whether the archiver of the stream has nothing more to do."""
        return self in {StreamState.EXCLUDED, StreamState.DELETED}
