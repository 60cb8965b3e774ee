"""Commands by which people steer an archive: jobs, holds, policies, quarantine, dead letters, and what they list."""

from __future__ import annotations

import pytest

from coldstream.lifecycle import classes
from tests.faults.broker_acts import find_published, with_streams
from tests.faults.fault_acts import Outcome, command, with_bus
from tests.faults.fault_scenario import FaultScenario
from tests.faults.faulty_world import DEAD_LETTERS, UPLOADS_QUEUE, FaultyWorld
from tests.faults.job_acts import create_job
from tests.faults.prepared_acts import (
    GRANT,
    GRANTED,
    POLICY,
    archive_sound,
    damage_staged,
    first_aside,
    hold_id,
    job_id,
    later,
)
from tests.faults.queue_acts import first_letter, letters_of, no_letter_is_lost
from tests.faults.shard_acts import APPLY, with_broker

_BY = ("--by", "alice")
_YES = ("--yes", *_BY)
_CREATE = create_job("scrub")
_PAUSE = command("jobs", "pause", *_BY, more=job_id)
_CANCEL = command("jobs", "cancel", *_YES, more=job_id)
_HOLD = command("hold", "put", "orders", "--reason", "a lawsuit", *_BY)
_COLDER = ("policy", "set", "cold", "--streams", "*/*", "--storage-class-after", "1d", "--storage-class")
_RUN = command("retention", "run", "--yes")


def _move(world: FaultyWorld) -> Outcome:
    """Apply the policies, to small objects, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classes, "MIN_OBJECT_BYTES", 1)
        return _RUN(world)


_SHARDED = "readings-of-7f3a"
_LETTERS = ("--queue", DEAD_LETTERS)


_REPLAY = command("replay", "orders", more=lambda world: ("--to-jsonl", str(world.scratch / "replay")))


def _find_replayed(world: FaultyWorld) -> Outcome:
    """Find each message once."""
    lines = [
        line for path in sorted((world.scratch / "replay").rglob("*.jsonl")) for line in path.read_text().splitlines()
    ]
    return Outcome(b"", None if len(set(lines)) == len(lines) > 0 else f"replayed {len(lines)} lines")


STEERING = (
    FaultScenario("jobs show", command("jobs", "show", more=job_id), prepared=(_CREATE,)),
    FaultScenario("jobs logs", command("jobs", "logs", more=job_id), prepared=(_CREATE, _PAUSE)),
    FaultScenario("jobs pause", _PAUSE, prepared=(_CREATE,), again=False),
    FaultScenario("jobs resume", command("jobs", "resume", *_BY, more=job_id), prepared=(_CREATE, _PAUSE), again=False),
    FaultScenario(
        "jobs edit",
        command("jobs", "edit", *_BY, more=lambda world: (*job_id(world), "name=another")),
        prepared=(_CREATE,),
    ),
    FaultScenario("jobs cancel", _CANCEL, prepared=(_CREATE,), again=False),
    FaultScenario(
        "jobs delete", command("jobs", "delete", "--yes", more=job_id), prepared=(_CREATE, _CANCEL), again=False
    ),
    FaultScenario("hold list", command("hold", "list"), prepared=(_HOLD,)),
    FaultScenario(
        "hold release",
        command("hold", "release", "orders", *_BY, more=hold_id),
        prepared=(_HOLD,),
        again=False,
    ),
    FaultScenario("policy list", command("policy", "list"), prepared=(POLICY,), is_exact=True),
    FaultScenario("policy show", command("policy", "show", "all"), prepared=(POLICY,), is_exact=True),
    FaultScenario("policy rm", command("policy", "rm", "all"), prepared=(POLICY,), again=False),
    FaultScenario("access list", command("access", "list"), prepared=(GRANT,)),
    FaultScenario("access revoke", command("access", "revoke", *GRANTED), prepared=(GRANT,), again=False),
    FaultScenario(
        "restore",
        command("restore", "orders", "--offsets", "0:300", "--yes"),
        prepared=(command(*_COLDER, "GLACIER"), later(9), _move),
    ),
    FaultScenario(
        "retention into another class",
        _move,
        prepared=(command(*_COLDER, "STANDARD_IA"), later(9)),
        of=frozenset({"retention run"}),
    ),
    FaultScenario(
        "quarantine show", command("quarantine", "show", "orders", more=first_aside), prepared=(damage_staged,)
    ),
    FaultScenario(
        "quarantine retry",
        with_bus(command("quarantine", "retry", "orders", "--timeout", "0", *_BY, more=first_aside)),
        prepared=(damage_staged,),
    ),
    FaultScenario(
        "quarantine release",
        command("quarantine", "release", "orders", "--delete", *_YES, more=first_aside),
        prepared=(damage_staged, archive_sound),
        again=False,
    ),
    FaultScenario(
        "quarantine discard",
        command("quarantine", "discard", "orders", "--reason", "a disk is gone", *_YES, more=first_aside),
        prepared=(damage_staged,),
        again=False,
    ),
    FaultScenario(
        "dead-letters list",
        command("dead-letters", "list", *_LETTERS),
        prepared=(letters_of(lambda world: world.staged),),
    ),
    FaultScenario(
        "dead-letters show",
        command("dead-letters", "show", *_LETTERS, more=first_letter),
        prepared=(letters_of(lambda world: world.staged),),
        again=False,  # a letter that could not be given back is hidden for two minutes
    ),
    FaultScenario(
        "dead-letters redrive",
        command("dead-letters", "redrive", "--all", *_LETTERS, "--to", UPLOADS_QUEUE),
        prepared=(letters_of(lambda world: world.staged),),
        after=(no_letter_is_lost,),
    ),
    FaultScenario(
        "dead-letters discard",
        command("dead-letters", "discard", "--all", "--yes", *_LETTERS),
        prepared=(letters_of(lambda world: (*world.uploaded, *world.staged)),),
        after=(no_letter_is_lost,),
    ),
    FaultScenario("shards apply", APPLY, of=frozenset({"shards apply"})),
    FaultScenario(
        "shards status",
        with_broker(command("shards", "status")),
        prepared=(APPLY,),
        is_exact=True,
        of=frozenset({"shards status"}),
    ),
    FaultScenario("shards list", command("shards", "list"), prepared=(APPLY,), is_exact=True),
    FaultScenario("shards show", command("shards", "show", _SHARDED), prepared=(APPLY,)),
    FaultScenario("shards history", command("shards", "history", _SHARDED), prepared=(APPLY,)),
    FaultScenario("shards groups", command("shards", "groups", _SHARDED), prepared=(APPLY,), is_exact=True),
    FaultScenario("replay into files", _REPLAY, after=(_find_replayed,)),
    FaultScenario(
        "replay into a stream",
        with_streams(command("replay", "orders", "--to-stream", "again")),
        after=(find_published("again"),),
        of=frozenset({"replay"}),
    ),
)
