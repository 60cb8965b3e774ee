"""The upkeep of a long archive: garbage, sweep, retention, scrub and rebuild, in two sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.computed import CHUNKS, DAY_MS, ComputedArchive, ComputedObjects, ComputedTable
from bench.harness import MB, Aim, Cell, ChildRun, Section, Stopwatch, in_child, say
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.run import GarbageCollector
from coldstream.lifecycle.retention import run_retention
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.sweep import sweep
from coldstream.manifest.policy import Policy
from coldstream.rebuild.entries import Unreadable
from coldstream.rebuild.fragment import FoundFragment
from coldstream.rebuild.run import Rebuilder
from coldstream.scrub.budget import Budget
from coldstream.scrub.run import Scrubber, ScrubOptions
from coldstream.store.control import ControlObjects
from coldstream.store.log import iter_log
from coldstream.store.ports import ListedObject
from coldstream.units import Offset, TimestampMs

SIZES = (5_000, 50_000)
MAX_GROWTH = 1.3
"""Of CPU an object, from the small archive to the large one."""
MAX_GROWTH_MB = 16

LIST, QUERY = "bare LIST", "bare Query"


@dataclass(frozen=True, slots=True)
class _Run:
    """One archive of a stream, and the stores that a piece of work has."""

    archive: ComputedArchive
    table: ComputedTable
    objects: ComputedObjects

    @property
    def stores(self) -> LifecycleStores:
        return LifecycleStores.open(self.table, self.objects, self.archive.keys, grace_ms=7 * DAY_MS)


def _list(run: _Run) -> int:
    return sum(1 for _ in run.objects.listed(""))


def _query(run: _Run) -> int:
    return sum(1 for _ in iter_log(run.table, run.archive.incarnation, Offset(0)))


def _report(run: _Run) -> int:
    return _garbage(run, GarbageOptions())


def _delete(run: _Run) -> int:
    return _garbage(run, GarbageOptions(delete=True))


def _garbage(run: _Run, options: GarbageOptions) -> int:
    collector = GarbageCollector(run.table, run.objects, run.archive.keys, run.objects.clock)
    return sum(one.objects for one in collector.run(options).findings if one.kind.value == "fragment")


def _sweep(run: _Run) -> int:
    return sweep(run.stores, run.archive.incarnation).objects


def _plan(run: _Run) -> int:
    run.table.put_policy(Policy("all", "*/*", max_age_ms=DAY_MS))
    (report,) = run_retention(run.stores, [run.archive.stream], dry_run=True)
    return report.removal.fragments


def _scrub(run: _Run) -> int:
    scrubber = Scrubber(run.table, run.objects, run.archive.keys, run.objects.clock)
    report = scrubber.run(None, ScrubOptions(), Budget())
    assert not report.findings, report.findings[:3]
    return report.position.fragments


def _rebuild(run: _Run) -> int:
    return _rebuilt(run, None)


def _commit(run: _Run) -> int:
    """Do what the driver of the Spark job does, which gets the entries from its tasks."""

    def read(listed: Iterator[ListedObject]) -> Iterator[FoundFragment | Unreadable]:
        for one in listed:
            number = run.archive.number(one.key)
            assert number is not None
            yield FoundFragment(run.archive.entry(number), 0, one.last_modified, has_note=True)

    return _rebuilt(run, read)


def _rebuilt(run: _Run, read: Callable[[Iterator[ListedObject]], Iterator[FoundFragment | Unreadable]] | None) -> int:
    rebuilder = Rebuilder(run.table, run.objects, run.archive.keys, run.objects.clock, grace_ms=7 * DAY_MS, read=read)
    report = rebuilder.stream(run.archive.incarnation)
    assert report.is_done, report
    assert not report.unread, report.unreadable[:3]
    return report.written


@dataclass(frozen=True, slots=True)
class _Work:
    """A piece of work on every fragment, and whether all of them have an entry, or a tombstone, which may be due.

    `baseline` is what reads the same keys, or entries, or both.
    """

    do: Callable[[_Run], int]
    baseline: tuple[str, ...]
    has_entries: bool = False
    has_tombstones: bool = False
    is_due: bool = False


WORK = {
    LIST: _Work(_list, (LIST,)),
    QUERY: _Work(_query, (QUERY,), has_entries=True),
    "garbage, all named": _Work(_report, (LIST, QUERY), has_entries=True),
    "garbage, all deleted": _Work(_delete, (LIST,)),
    "garbage, all with a tombstone": _Work(_delete, (LIST,), has_tombstones=True),
    "sweep, all due": _Work(_sweep, (LIST,), has_tombstones=True, is_due=True),
    "plan of retention": _Work(_plan, (QUERY,), has_entries=True),
    "scrub": _Work(_scrub, (LIST, QUERY), has_entries=True),
    "rebuild": _Work(_rebuild, (LIST, QUERY)),
    "rebuild, commits alone": _Work(_commit, (LIST, QUERY)),
}

READS_OF_OBJECTS = ("HeadObject", "GetObject")
READS_OF_TABLE = ("GetItem", "Query", "TransactGetItems")

HOW = f"""\
The work on an archive of one stream, in a new process each. Table and bucket compute what they are asked for: the
entries, and of each object the answers to LIST and HEAD and what follows its {CHUNKS} chunks. So memory is the work's
own, and so is most of the CPU; what the SDK takes for each request comes on top, and is not measured. Requests are
those that the real stores send; a handful of others, such as those for the bucket's settings, are left out. The
baseline gets the same pages of LIST, of Query, or of both, and does nothing with them. "Commits alone" is the part of a
rebuild that Spark leaves to one process."""


def measure(sizes: tuple[int, ...] = SIZES) -> Section:
    """Measure each piece of work at each size."""
    runs: dict[tuple[str, int], ChildRun] = {}
    for fragments in sizes:
        for name in WORK:
            say(f"{name}, {fragments:,} fragments")
            runs[name, fragments] = in_child("bench.upkeep:work", {"name": name, "fragments": fragments})
    return Section(
        title="Upkeep of a long archive",
        how=HOW,
        columns=(
            "what",
            "fragments",
            "CPU µs each",
            "of the baseline",
            "memory, MB",
            "LIST",
            "DeleteObjects",
            "HEAD, GET",
            "table reads",
            "transactions",
        ),
        rows=tuple(_row(name, fragments, runs) for name, fragments in runs),
        aims=tuple(_aims(runs, sizes)),
    )


def _row(name: str, fragments: int, runs: dict[tuple[str, int], ChildRun]) -> tuple[Cell, ...]:
    run = runs[name, fragments]
    requests: dict[str, int] = run.answer["requests"]
    baseline_s = sum(runs[one, fragments].cpu_s for one in WORK[name].baseline)
    return (
        name,
        fragments,
        1e6 * run.cpu_s / fragments,
        run.cpu_s / baseline_s,
        run.peak_memory_mb,
        requests.get("ListObjectsV2", 0),
        requests.get("DeleteObjects", 0),
        sum(requests.get(call, 0) for call in READS_OF_OBJECTS),
        sum(requests.get(call, 0) for call in READS_OF_TABLE),
        requests.get("TransactWriteItems", 0),
    )


def _aims(runs: dict[tuple[str, int], ChildRun], sizes: tuple[int, ...]) -> list[Aim]:
    small, large = sizes[0], sizes[-1]
    growth = {
        name: (runs[name, large].cpu_s / large) / (runs[name, small].cpu_s / small)
        for name in WORK
        if name not in {LIST, QUERY}
    }
    memory = {name: (runs[name, large].peak_rss_bytes - runs[name, small].peak_rss_bytes) / MB for name in growth}
    requests: dict[str, int] = runs["garbage, all deleted", large].answer["requests"]
    pages = -(-large // 1000)
    slowest, largest = max(growth, key=growth.__getitem__), max(memory, key=memory.__getitem__)
    return [
        Aim(
            f"a LIST and a DeleteObjects for each thousand objects of garbage, {pages + 2:,} of each at most",
            f"{requests['ListObjectsV2']:,} and {requests['DeleteObjects']:,}",
            max(requests["ListObjectsV2"], requests["DeleteObjects"]) <= pages + 2,
        ),
        Aim(
            f"CPU an object grows by a factor of {MAX_GROWTH} at most, from the small archive to the large one",
            f"{growth[slowest]:.2f}, {slowest}",
            growth[slowest] <= MAX_GROWTH,
        ),
        Aim(
            f"memory grows by {MAX_GROWTH_MB} MB at most",
            f"{memory[largest]:.0f} MB, {largest}",
            memory[largest] <= MAX_GROWTH_MB,
        ),
    ]


def work(name: str, fragments: int) -> dict[str, Any]:
    """Do one piece of work on an archive of so many fragments, in this process."""
    archive, what = ComputedArchive(fragments), WORK[name]
    objects = ComputedObjects(archive)
    due_at = TimestampMs(archive.now + DAY_MS * (-1 if what.is_due else 1))
    table = ComputedTable(
        archive,
        entries=fragments if what.has_entries else 0,
        tombstones=fragments if what.has_tombstones else 0,
        due_at=due_at,
    )
    if what.do is _delete and not what.has_tombstones:
        table.begin()
    control = ControlObjects(objects, archive.keys)
    control.write_stream(archive.stream)
    objects.requests.clear()
    with Stopwatch() as watch:
        done = what.do(_Run(archive, table, objects))
    assert abs(done - fragments) <= 1, (name, done)
    requests = objects.requests + table.requests
    return {"seconds": watch.seconds, "cpu_s": watch.cpu_s, "requests": requests, "journal_bytes": table.written}
