"""Streams that the table does not know, although the bucket has fragments of them."""

from __future__ import annotations

from functools import cached_property

from coldstream.errors import InvalidInputError
from coldstream.garbage.options import GarbageOptions
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.store.streams import iter_streams


class UnknownStreams:
    """Tells whether the fragments of a stream without a head may go.

    They may only if the caller says so, and if neither the table's registry nor the bucket's control objects know the
    stream either. More likely than a stream that never was is a table that was lost: `coldstream rebuild` then needs
    these very objects.
    """

    def __init__(self, table: ManifestTable, objects: ObjectStore, keys: Keys, options: GarbageOptions) -> None:
        self._table = table
        self._objects = objects
        self._keys = keys
        self._options = options

    def may_go(self, incarnation: Incarnation) -> bool:
        """Tell whether a stream's fragments may go. Cost: a HEAD; the first time, a Query every 500 streams.

        Raises InvalidInputError if the table knows no stream at all.
        """
        if not self._options.unknown_streams:
            return False
        if not self._registered:
            raise InvalidInputError(
                "--unknown-streams",
                "the table knows no stream at all: it is another archive's, or was lost, and then `coldstream rebuild`"
                " needs what is in the bucket",
            )
        if incarnation in self._registered:
            return False
        return self._objects.info(self._keys.stream_note(incarnation)) is None

    @cached_property
    def _registered(self) -> frozenset[Incarnation]:
        return frozenset(stream.incarnation for stream in iter_streams(self._table))
