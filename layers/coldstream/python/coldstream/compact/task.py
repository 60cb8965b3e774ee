"""The work on one group, as it travels to whoever writes it, and what comes back if it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coldstream.compact.write import MergedFragment, write_group
from coldstream.errors import ColdstreamError, CorruptionError, ObjectNotFoundError
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import Group
from coldstream.manifest.stream import StreamId
from coldstream.store.keys import Keys
from coldstream.store.ports import ObjectStore
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Write a group's object in an encoding, at a level of compression, at a key of `generation` or a later one."""

    stream: StreamId
    group: Group
    encoding: Encoding
    level: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class GroupFailure:
    """Why a group was not compacted; `key` and `position` say where a fragment is corrupt.

    Offsets are None if the stream could not even be planned.
    """

    kind: type[ColdstreamError]
    message: str
    first_offset: Offset | None
    next_offset: Offset | None
    key: str | None
    position: int | None

    def __str__(self) -> str:
        what = f"{self.kind.__name__}: {self.message}"
        return what if self.first_offset is None else f"offsets {self.first_offset} on: {what}"

    @classmethod
    def of(cls, err: ColdstreamError, group: Group | None = None) -> GroupFailure:
        """Describe an error. The errors themselves do not travel: those with fields of their own do not pickle."""
        key = None
        if isinstance(err, CorruptionError):
            key = err.source
        elif isinstance(err, ObjectNotFoundError):
            key = err.key
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
    task: CompactionTask,
    *,
    on_bytes: Callable[[int], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> MergedFragment | GroupFailure:
    """Write the object of a task; return what goes wrong with its group, so that the others go on."""
    try:
        return write_group(
            objects,
            keys,
            task.stream.incarnation,
            task.group,
            task.encoding,
            level=task.level,
            least_generation=task.generation,
            on_bytes=on_bytes,
            should_stop=should_stop,
        )
    except ColdstreamError as err:
        return GroupFailure.of(err, task.group)
