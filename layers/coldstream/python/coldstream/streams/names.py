"""Names of direct streams: who may have one, what was created under it, and what a crash in between has left to do."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from coldstream.archive.cluster_binding import claim
from coldstream.errors import InvalidInputError, StreamExistsError, StreamNotFoundError
from coldstream.manifest.appender import properties_of
from coldstream.manifest.appending import plan_create
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import Incarnation, check_name, new_stream
from coldstream.store.direct_names import DirectName, add_name, find_name, iter_names, remove_name
from coldstream.store.races import retry_lost_races
from coldstream.store.reserved import StreamAction, check_not_reserved
from coldstream.streams.archive import DIRECT, DirectArchive
from coldstream.units import MAX_OFFSET, Offset, TimestampMs

PAGE_NAMES = 100
"""Names that a listing holds at a time: half a MB at most."""


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A direct stream: its names, its incarnation, its creator's properties, and when it was created, in ms."""

    name: str
    vhost: str
    incarnation: Incarnation
    properties: Mapping[str, str]
    created: TimestampMs


def create_stream(archive: DirectArchive, vhost: str, name: str, first: Offset, properties: Mapping[str, str]) -> None:
    """Create a stream, closed and empty.

    Cost: ten requests to the table and three PUTs. Raises InvalidInputError, also for the name of a sharded
    stream or a partition (ReservedNameError), StreamExistsError, and OtherClusterError if the archive has bound the
    names to a broker's cluster.
    """
    check_name("vhost", vhost)
    check_name("stream name", name)
    if not 0 <= first <= MAX_OFFSET:
        raise InvalidInputError("first", f"{first} is no offset")
    new = DirectName(new_stream(vhost, name, _created_ns()), first, properties_of(properties))
    known = find_name(archive.table, vhost, name)
    if known is not None:
        head = finish_creation(archive, known)
        if not head.is_deleted:
            raise StreamExistsError(str(known.stream))
        # Who destroyed that stream died before it gave the name back.
        remove_name(archive.table, known.stream)
    _check_no_broker_has_it(archive, vhost, name)
    check_not_reserved(archive.table, vhost, name, StreamAction.CREATE)
    claim(archive.table, archive.control, new.stream, DIRECT)
    add_name(archive.table, new)
    finish_creation(archive, new)


def find_stream(archive: DirectArchive, vhost: str, name: str) -> Head:
    """Return the head of the direct stream that has a name.

    Cost: two GetItems. Raises StreamNotFoundError if there is none, or it is just being destroyed.
    """
    check_name("vhost", vhost)
    check_name("stream name", name)
    known = find_name(archive.table, vhost, name)
    if known is None:
        raise StreamNotFoundError(f"there is no direct stream {name!r} in vhost {vhost!r}")
    head = finish_creation(archive, known)
    if head.is_deleted:
        raise StreamNotFoundError(f"{known.stream} is destroyed")
    return head


def finish_creation(archive: DirectArchive, known: DirectName) -> Head:
    """Return the head of a stream that has its name, and make it if who created it died right after the name.

    Cost: one GetItem; to make it, two PUTs and a transaction.
    """

    def attempt() -> Head:
        head = archive.table.head(known.stream.incarnation)
        if head is not None:
            return head
        change = plan_create(known.stream, archive.now(), first=known.first, properties=dict(known.properties))
        # Before the transaction: what tells in the bucket that there is such a stream, and what it is.
        archive.control.write_stream(known.stream)
        archive.control.write_direct(change.head)
        archive.table.apply(change)
        return change.head

    return retry_lost_races(attempt)


def list_streams(archive: DirectArchive, vhost: str | None) -> Iterator[StreamInfo]:
    """Yield the direct streams of a vhost, or of all, by a hash of their names. Cost: one Query a page of 100."""
    for known in iter_names(archive.table, page_items=PAGE_NAMES):
        if vhost in {None, known.stream.vhost}:
            yield StreamInfo(
                known.stream.name,
                known.stream.vhost,
                known.stream.incarnation,
                dict(known.properties),
                TimestampMs(known.created_ns // 1_000_000),
            )


def _check_no_broker_has_it(archive: DirectArchive, vhost: str, name: str) -> None:
    incarnation = archive.table.incarnation_of(vhost, name)
    head = None if incarnation is None else archive.table.head(incarnation)
    if head is not None and head.appender is None and not head.is_deleted:
        raise StreamExistsError(str(head.stream))


def _created_ns() -> int:
    # The last digits are random: two who create the same stream at the same moment must not seem to be one.
    return time.time_ns() // 1000 * 1000 + random.randrange(1000)  # noqa: S311  no secret
