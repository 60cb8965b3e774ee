"""The rebuild of an archive: which streams the bucket has, and each of them into the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby

from coldstream.errors import CorruptionError, InvalidNameError, StreamExistsError, StreamNotFoundError
from coldstream.flow.window import map_ahead
from coldstream.manifest.stream import Incarnation, incarnation
from coldstream.rebuild.entries import READS_AT_ONCE, Unreadable, list_as_of, list_fragments, rebuild_entries
from coldstream.rebuild.facts import Doubt, StreamFacts, StreamReport
from coldstream.rebuild.facts_reader import FactsReader, named_by_directory
from coldstream.rebuild.fragment import FoundFragment
from coldstream.rebuild.stream import StreamRebuild
from coldstream.store.control import ControlObjects
from coldstream.store.direct_names import DirectName, add_name, find_name, remove_name
from coldstream.store.keys import Keys, directory_of
from coldstream.store.ports import ListedObject, ManifestTable, ObjectStore
from coldstream.store.shard_maps import restore_map
from coldstream.units import TimestampMs


@dataclass(frozen=True, slots=True)
class Rebuilder:
    """Rebuilds streams of one bucket into one table.

    `at` is the time that is rebuilt, None for now. `grace_ms` is the time until superseded objects may be deleted.
    `on_object` is called, in some thread, for each object that is listed. `read` makes the entries of listed objects,
    in their order; by default threads of this process do (`rebuild_entries`).
    """

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    now: Callable[[], TimestampMs]
    grace_ms: int
    at: TimestampMs | None = None
    is_dry: bool = False
    reads_at_once: int = READS_AT_ONCE
    should_stop: Callable[[], bool] = lambda: False
    on_object: Callable[[ListedObject], None] = lambda _: None
    read: Callable[[Iterator[ListedObject]], Iterator[FoundFragment | Unreadable]] | None = None

    def streams(self, incarnations: Iterable[Incarnation], *, at_once: int) -> Iterator[StreamReport]:
        """Rebuild streams, `at_once` of them at a time; yield their reports, in order. Safe to repeat after a kill.

        If a control object of a stream is damaged, nobody knows what it protects or removes: the stream is not rebuilt
        any further, and its report names the object.

        Raises InvalidInputError if the table has one of them already, from elsewhere.
        """
        with ThreadPoolExecutor(at_once, thread_name_prefix="stream") as pool:
            yield from map_ahead(pool, self._stream_or_damage, incarnations, max_calls=at_once)

    def _stream_or_damage(self, of: Incarnation) -> StreamReport:
        """Rebuild one stream; one whose control objects are damaged stops, and leaves the others alone."""
        try:
            return self.stream(of)
        except CorruptionError as err:
            damage = Doubt(err.source, str(err))
            return StreamReport(named_by_directory(of), is_named=False, unread=1, unreadable=(damage,))

    def stream(self, of: Incarnation) -> StreamReport:
        """Rebuild one stream, with threads that read objects ahead."""
        facts = self.facts(of)
        if facts.base.appender is not None and not facts.base.is_deleted and not self.is_dry:
            facts = self._with_name(facts)
        rebuild = StreamRebuild(self.table, facts, now=self.now, grace_ms=self.grace_ms, at=self.at, is_dry=self.is_dry)
        if not rebuild.begin():
            return replace(rebuild.report(), is_done=True)
        listed = self._listed(rebuild, facts)
        found = self._read_here(listed) if self.read is None else self.read(listed)
        return rebuild.finish() if rebuild.take(found, should_stop=self.should_stop) else rebuild.report()

    def _with_name(self, facts: StreamFacts) -> StreamFacts:
        """Give a direct stream its name back; a later stream of that name keeps it, and a note says so."""
        name = DirectName.of(facts.base)
        while (known := find_name(self.table, name.stream.vhost, name.stream.name)) != name:
            if known is not None and known.created_ns > name.created_ns:
                note = f"its name belongs to {known.stream.incarnation}, which was created later"
                return replace(facts, notes=(*facts.notes, note))
            if known is not None:
                remove_name(self.table, known.stream)
            with suppress(StreamExistsError):  # of one that is rebuilt beside this one
                add_name(self.table, name)
        return facts

    def facts(self, of: Incarnation) -> StreamFacts:
        """Read what the bucket says of a stream beside its fragments."""
        return FactsReader(self.objects, self.keys, at=self.at).read(of)

    def of_no_stream(self) -> None:
        """Write grants, policies, the clusters that streams are bound to, and shard maps. Safe to repeat.

        Of a map every revision that the bucket has comes back, so its journal may begin late, or lack some. Raises
        CorruptionError if a control object is damaged; a map of fewer revisions would be a lineage that is not true.
        """
        control = ControlObjects(self.objects, self.keys)
        if self.is_dry:
            return
        for grant in control.grants():
            self.table.put_grant(grant)
        for policy in control.policies():
            self.table.put_policy(policy)
        for binding in control.clusters():
            self.table.bind_cluster(binding.vhost, binding.name, binding.cluster)
        for _, events in groupby(control.shard_maps(), key=lambda one: (one[1].vhost, one[1].name)):
            restore_map(self.table, events)

    def _read_here(self, listed: Iterator[ListedObject]) -> Iterator[FoundFragment | Unreadable]:
        return rebuild_entries(self.objects, self.keys, listed, at_once=self.reads_at_once)

    def _listed(self, rebuild: StreamRebuild, facts: StreamFacts) -> Iterator[ListedObject]:
        of, first = facts.stream.incarnation, rebuild.next_offset
        if self.at is not None and self.objects.capabilities().versioned:
            listed = list_as_of(self.objects, self.keys, of, first, at=self.at, on_gone=rebuild.tell_gone)
        else:
            listed = list_fragments(self.objects, self.keys, of, first)
        for one in listed:
            self.on_object(one)
            yield one


def find_named(objects: ObjectStore, keys: Keys, vhost: str, names: Sequence[str]) -> Iterator[Incarnation]:
    """Yield every incarnation of the streams of these names; without names, all that the bucket has.

    Cost: that of `find_incarnations`; with names also a GET for each, and a listing for one without the note of its
    names. Raises StreamNotFoundError in the end, for a name that none has.
    """
    left = set(names)
    for found in find_incarnations(objects, keys):
        if not names:
            yield found
            continue
        stream = FactsReader(objects, keys).named(found)
        if stream.vhost == vhost and stream.name in names:
            left.discard(stream.name)
            yield found
    if left:
        raise StreamNotFoundError(f"the bucket has no stream {min(left)!r} in vhost {vhost!r}")


def find_incarnations(objects: ObjectStore, keys: Keys) -> Iterator[Incarnation]:
    """Yield the incarnations that a bucket has, in the order of their keys.

    Cost: one LIST for each, however many objects it has: the listing skips from one directory to the next.
    """
    after: str | None = None
    while (one := next(iter(objects.listed(keys.prefix, after=after)), None)) is not None:
        directory, slash, _ = one.key.removeprefix(keys.prefix).partition("/")
        if slash and (found := _incarnation_of(directory)) is not None:
            yield found
        # "0" comes right after "/", so that is past everything in the directory.
        after = f"{keys.prefix}{directory}0" if slash else one.key


def _incarnation_of(directory: str) -> Incarnation | None:
    """Read the incarnation of a directory, None for any other."""
    _, _, text = directory.partition("_")
    try:
        found = incarnation(text)
    except InvalidNameError:
        return None
    return found if directory_of(found) == directory else None
