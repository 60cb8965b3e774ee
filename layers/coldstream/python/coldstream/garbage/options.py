"""What a garbage run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidInputError
from coldstream.garbage.kinds import HOUR_MS, LONGEST_UPLOAD_MS

LEAST_OLDER_THAN_MS = HOUR_MS
"""Four times as long as the upload function can run. The fence protects even younger objects; but a writer that is
refused has to write again, and should not be refused for nothing."""


@dataclass(frozen=True, slots=True)
class GarbageOptions:
    """With `delete`, garbage is deleted, else only reported.

    `older_than_ms` is the least age of a fragment that may be garbage. With `unknown_streams`, fragments of streams
    that neither table nor bucket know are garbage, too. `max_objects` ends the run once so many objects were looked
    at, None for no end. With `versions`, noncurrent versions are counted, by a listing of their own.
    """

    delete: bool = False
    older_than_ms: int = LONGEST_UPLOAD_MS
    unknown_streams: bool = False
    max_objects: int | None = None
    versions: bool = False

    def __post_init__(self) -> None:
        if self.older_than_ms < LEAST_OLDER_THAN_MS:
            raise InvalidInputError("--older-than", "is less than an hour: uploads may still be under way")
        if self.max_objects is not None and self.max_objects < 1:
            raise InvalidInputError("--limit", f"{self.max_objects} is not 1 or more")
