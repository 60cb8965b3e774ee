"""`FenceNotes`: sees to it that the bucket knows a fence before anything below it is deleted.

A table that is rebuilt from the bucket must refuse the keys whose objects are gone, too: else a writer that slept all
the while commits an entry without an object.
"""

from __future__ import annotations

from coldstream.manifest.entry import Head
from coldstream.manifest.stream import Incarnation
from coldstream.store.control import ControlObjects


class FenceNotes:
    """Writes the notes of fences, each once."""

    def __init__(self, control: ControlObjects) -> None:
        self._control = control
        # Of the last stream alone: a pass takes one after the other.
        self._noted: tuple[Incarnation, int] | None = None

    def note(self, before: Head, fenced: Head) -> None:
        """Have the bucket say what `fenced` says, the head after a fence; `before` is the one that was read before it.

        Cost: a PUT if the fence raised the generation. If it was high enough, whoever raised it may have died before
        the note: then a listing and a GET, once for a stream.
        """
        noted = fenced.stream.incarnation, fenced.generation
        if fenced.generation > before.generation:
            self._control.write_floor(fenced)
        elif self._noted != noted:
            self._control.write_missing_floor(fenced)
        self._noted = noted
