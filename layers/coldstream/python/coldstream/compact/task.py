"""Tasks: one group to write, as it travels to whoever writes it, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coldstream.compact.write import Written, write_group
from coldstream.errors import ColdstreamError, CorruptionError, ObjectNotFoundError
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import Group
from coldstream.manifest.stream import StreamId
from coldstream.store.keys import Keys
from coldstream.store.ports import ObjectStore
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class Task:
    """Write a group's object in an encoding, at a level of compression."""

    stream: StreamId
    group: Group
    encoding: Encoding
    level: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a group was not compacted; `key` and `position` say where a fragment is corrupt.

    Offsets are None where a stream could not even be planned.
    """

    kind: type[ColdstreamError]
    message: str
    first_offset: Offset | None = None
    next_offset: Offset | None = None
    key: str | None = None
    position: int | None = None

    def __str__(self) -> str:
        what = f"{self.kind.__name__}: {self.message}"
        return what if self.first_offset is None else f"offsets {self.first_offset} on: {what}"

    @classmethod
    def of(cls, err: ColdstreamError, group: Group | None = None) -> Failure:
        """Describe an error: errors themselves do not travel between processes."""
        key = (
            err.source
            if isinstance(err, CorruptionError)
            else err.key
            if isinstance(err, ObjectNotFoundError)
            else None
        )
        return cls(
            kind=type(err),
            message=str(err),
            first_offset=None if group is None else group.first_offset,
            next_offset=None if group is None else group.next_offset,
            key=key,
            position=err.position if isinstance(err, CorruptionError) else None,
        )


def write_task(
    objects: ObjectStore,
    keys: Keys,
    task: Task,
    *,
    on_bytes: Callable[[int], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Written | Failure:
    """Write the object of a task; what goes wrong with this group is returned, so that others go on."""
    try:
        return write_group(
            objects,
            keys,
            task.stream.incarnation,
            task.group,
            task.encoding,
            level=task.level,
            on_bytes=on_bytes,
            should_stop=should_stop,
        )
    except ColdstreamError as err:
        return Failure.of(err, task.group)
