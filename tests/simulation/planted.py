"""Mistakes put into the shipped code, each of which the judge has to notice.

`PLANTED` has, for each, what makes it, and a seed that notices it. Some bring back what was mended once: corpus.tsv
names them. Where the world changed, other seeds notice them: `python -m tests.simulation.planted 40` finds these.
"""

from __future__ import annotations

import inspect
import logging
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

from coldstream.agent.proof.broker import Proof, ProofVerdict
from coldstream.agent.proof.proving import StreamProving
from coldstream.agent.slice_delivery import SliceDelivery
from coldstream.archive import missing
from coldstream.compact import commit as compact_commit
from coldstream.compact import plan as compact_plan
from coldstream.consumer import catchup, incarnations
from coldstream.consumer.brokerlog import BrokerLog
from coldstream.consumer.catchup import CatchUp
from coldstream.consumer.live import LiveReader
from coldstream.consumer.position import ReadPosition
from coldstream.consumer.start import StartFinder
from coldstream.erase.run import Eraser
from coldstream.errors import ColdstreamError
from coldstream.gateway.takeover.flow import ChunkFlow
from coldstream.gateway.takeover.plan import ArchiveStart
from coldstream.gateway.takeover.serving import ArchiveServer
from coldstream.gateway.takeover.settling import Settler
from coldstream.jobs.attempt import LeaseWatch
from coldstream.jobs.job import JobState
from coldstream.jobs.run import JobRun
from coldstream.jobs.store import JobStore
from coldstream.lifecycle import deletion as lifecycle_deletion
from coldstream.lifecycle import purge
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.live.delivered import is_same
from coldstream.manifest import deletion
from coldstream.manifest.change import Change
from coldstream.manifest.entry import Head
from coldstream.manifest.spec import FIRST, NEXT, AtOffset
from coldstream.units import Offset, TimestampMs
from tests.explore.base import DAY_MS
from tests.linearizability.mutations import MUTATIONS

_deliver = SliceDelivery.deliver
_advance = ReadPosition.advance
_attachment = ReadPosition.attachment
_skip = CatchUp._skip
_plan_undelete = deletion.plan_undelete


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake, and the seed that notices it."""

    seed: int
    make: Callable[[], AbstractContextManager[Any]]


async def _believe(self: StreamProving, witness: Any) -> Proof:
    return Proof(ProofVerdict.COMMITTED, witness)


async def _skip_some(self: SliceDelivery, slice_: Any, *arguments: Any, **named: Any) -> None:
    if slice_.first_offset % 5:
        await _deliver(self, slice_, *arguments, **named)


async def _yes(self: Any, *_: Any) -> bool:
    return True


async def _no(self: Any, *_: Any) -> bool:
    return False


def _still_deleted(head: Head, at: TimestampMs, by: str | None) -> Change:
    change = _plan_undelete(head, at, by)
    return replace(change, head=replace(change.head, deleted_at=head.deleted_at, purge_at=head.purge_at))


def _stand_still(self: ReadPosition, header: Any, **named: Any) -> None:
    if header.chunk_id % 17:
        _advance(self, header, **named)


def _at_the_end(self: ReadPosition) -> Any:
    found = _attachment(self)
    return NEXT if found == FIRST else found


async def _skip_more(self: CatchUp, gap: Any) -> None:
    await _skip(self, replace(gap, next_offset=Offset(gap.next_offset + 5)))


def _instead(seed: int, target: Any, name: str, made: Any) -> Mistake:
    return Mistake(seed, lambda: patch.object(target, name, made))


def _together(seed: int, *mistakes: Mistake) -> Mistake:
    """Make several at once, none of which shows alone."""

    @contextmanager
    def make() -> Iterator[None]:
        with ExitStack() as made:
            for mistake in mistakes:
                made.enter_context(mistake.make())
            yield

    return Mistake(seed, make)


def _blind_to_holds(seed: int, *modules: ModuleType) -> Mistake:
    """Have no module of these see a hold."""
    return _together(seed, *(_instead(seed, module, "held", lambda *_: None) for module in modules))


def _without(seed: int, owner: type | ModuleType, name: str, old: str, new: str) -> Mistake:
    """Have a method or function of the shipped code with one text in place of another."""

    def make() -> AbstractContextManager[Any]:
        source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
        assert source.count(old) == 1, f"{owner.__name__}.{name} has no {old!r} any more"
        module = vars(owner if inspect.ismodule(owner) else sys.modules[owner.__module__])
        made: dict[str, Any] = {}
        exec(f"from __future__ import annotations\n{source.replace(old, new)}", module, made)
        return patch.object(owner, name, made[name])

    return Mistake(seed, make)


APPENDERS = (
    "whoever opens a stream does not seal the logs before",
    "an append is acknowledged before it is durable",
    "recovery ignores the logs",
    "opening does not raise the epoch",
    "a handle goes on though another opened the stream",
)
"""Of the direct streams' mistakes, those that show within some seeds of this world, too."""

PLANTED: dict[str, Mistake] = {
    "an agent takes every chunk for confirmed": _instead(0, StreamProving, "prove", _believe),
    "an agent skips slices": _instead(0, SliceDelivery, "deliver", _skip_some),
    "a loss is not recorded": _instead(4, missing, "record_missing", lambda *_: None),
    "objects go without a grace": _instead(2, LifecycleStores, "due_at", lambda _, removed_at: removed_at),
    "a consumer trusts a node that has lost what comes next": _instead(1, BrokerLog, "reaches_back_to", _yes),
    "a consumer forgets how far it is": _instead(0, ReadPosition, "advance", _stand_still),
    "a consumer begins at its node's end": _instead(0, ReadPosition, "attachment", _at_the_end),
    "a consumer skips archived messages after a gap": _instead(1, CatchUp, "_skip", _skip_more),
    "a consumer does not ask its node what fills a gap": _instead(1, CatchUp, "_is_at_broker", _no),
    "a consumer does not wait for what is archived in any order": _instead(1, catchup, "GAP_WAIT_S", 0.0),
    "a consumer asks the next node what the last one left out": _without(
        3, LiveReader, "_follow", "if chunks.is_over:", "if False:"
    ),
    "a start at an offset takes what its node has while nothing is archived": _without(
        5, StartFinder, "find", "position.from_offset > 0:", "False:"
    ),
    "a worker does not look whether it still has its job": _instead(12, JobRun, "is_leased", lambda _: True),
    "a worker takes a job over whose worker is alive": _instead(
        0, LeaseWatch, "is_dead", lambda _, job: job.state is JobState.RUNNING
    ),
    "a deletion of a job that was interrupted is not finished": _without(
        7, JobStore, "_delete", "return False", "raise JobNotFoundError(job_id)"
    ),
    "a gateway takes what is not archived yet for lost": _instead(98, ArchiveServer, "_is_lasting", _yes),
    "a gateway takes what a node delivers for what comes next": _instead(11, Settler, "_reaches_back_to", _yes),
    "a gateway has the node go on too late": _instead(
        0, ArchiveStart, "attachment", property(lambda start: AtOffset(Offset(start.end + 5)))
    ),
    "a gateway does not count the chunks that it sends": _without(
        1, ChunkFlow, "sent", "self.ledger.client -= 1", "pass"
    ),
    "a consumer takes an erased chunk for another stream's": _instead(
        27, incarnations, "is_same", lambda one, other, **_: is_same(one, other)
    ),
    "an erasure leaves fragments out": _without(
        2, Eraser, "_erase", "if found.after is None:", "if found.after is None or entry.first_offset % 3:"
    ),
    "what an erasure replaced is not deleted": _instead(
        1, LifecycleStores, "due_at", lambda _, at: TimestampMs(at + 30 * DAY_MS)
    ),
    "compaction does not look at holds": _blind_to_holds(1, compact_plan, compact_commit),
    "a stream with a hold is deleted": _instead(1, deletion, "check_no_holds", lambda *_: None),
    "an undeletion leaves the stream deleted": _instead(1, lifecycle_deletion, "plan_undelete", _still_deleted),
    "a purge does not wait for the grace": _without(
        1, purge, "_state_of", "if stream.head.purge_at > stores.now():", "if False:"
    ),
    "a purge leaves what is staged": _without(1, purge, "_prefixes", "keys.all_staging, ", ""),
    **{name: Mistake(0, MUTATIONS[name][0]) for name in APPENDERS},
}


NOTICED = AssertionError, ColdstreamError
"""What a play ends with that noticed a mistake: the judge's word, or an error that ended a consumer."""


def first_noticed(mistake: Mistake, seeds: int, first: int = 0) -> tuple[int, str] | None:
    """Return the first seed that notices a mistake, of so many, and what is said; None if none does."""
    from tests.simulation.play import play  # noqa: PLC0415  the mistakes are put into what it imports

    with mistake.make():
        for seed in range(first, first + seeds):
            try:
                play(seed)
            except NOTICED as err:
                return seed, f"{type(err).__name__}: {err}"
    return None


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for told in sys.argv[2:] or PLANTED:
        print(told, first_noticed(PLANTED[told], int(sys.argv[1])), flush=True)  # noqa: T201
