"""The commands that end the life of what is archived, from `policy` to `restore`.

All but the last test run on an archive in memory.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.lifecycle.deletion import DEFAULT_GRACE_MS
from coldstream.manifest.appender import Appender
from coldstream.manifest.entry import Head
from coldstream.manifest.shard_events import ShardEventKind
from coldstream.manifest.stream import Incarnation
from coldstream.store.direct_names import DirectName, add_name, remove_name
from coldstream.store.ports import BucketCapabilities, DeleteFailure, DeleteReport
from coldstream.units import TimestampMs
from tests.cli.conftest import Cli
from tests.manifest.shard_samples import sample_map
from tests.support.archive import STREAM
from tests.support.changes import change_to
from tests.support.lifecycle import DAY_MS, GRACE_MS, INCARNATION, Scene
from tests.support.small_fragments import SmallFragments
from tests.support.written_maps import map_writer

COMMANDS = ("delete", "hold", "policy", "restore", "retention", "sweep", "truncate")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """An archive in memory that the commands work on."""
    made = Scene()
    open_on(made, monkeypatch)
    return made


def open_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in COMMANDS:
        monkeypatch.setattr(f"coldstream.cli.{command}.open_stores", lambda *_: scene.stores)
    monkeypatch.setattr("coldstream.lifecycle.classes.MIN_OBJECT_BYTES", 0)
    monkeypatch.setenv("COLDSTREAM_BY", "me")


def fragments(scene: Scene) -> int:
    return len(scene.log)


@pytest.mark.usefixtures("scene")
def test_a_policy_is_set_listed_shown_and_removed(cli: Cli) -> None:
    assert "everything is kept for ever" in cli("policy", "list").err
    done = cli("policy", "set", "old", "--streams", "%2F/ord*", "--max-age", "90d", "--keep-messages", "1")
    assert (done.code, done.out) == (0, "policy old: removes what is older than 90 d; keeps at least 1 message\n")
    cli("policy", "set", "first", "--streams", "*/*", "--priority", "3", "--storage-class", "GLACIER_IR",
        "--storage-class-after", "30d")  # fmt: skip
    heads, first, second = cli("policy", "list").out.splitlines()
    assert heads.split() == ["policy", "streams", "priority", "what", "it", "does"]
    assert first.split(maxsplit=3) == ["first", "*/*", "3", "keeps for ever; moves to GLACIER_IR after 30 d"]
    assert second.split()[:3] == ["old", "%2F/ord*", "0"]
    assert [one["name"] for one in cli("policy", "list", "-o", "json").json] == ["first", "old"]
    assert "it applies to 1 stream\n" in cli("policy", "show", "first").out
    assert "it applies to 0 streams\n" in cli("policy", "show", "old").out
    (shown,) = cli("policy", "show", "old", "-o", "json").json
    assert (shown["max_age_ms"], shown["applies_to"]) == (90 * 24 * 3600 * 1000, [])
    assert cli("policy", "rm", "first").out == "removed policy first\n"
    assert cli("policy", "rm", "first").code == 3
    assert cli("policy", "show", "first").code == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("policy", "set", "p", "--streams", "orders"), "not VHOST/STREAM"),
        (("policy", "set", "a policy", "--streams", "*/*"), "name"),
        (("policy", "set", "p", "--streams", "*/*", "--max-age", "soon"), "--max-age: 'soon' is not a duration"),
        (("policy", "set", "p", "--streams", "*/*", "--max-size", "big"), "--max-size"),
        (
            ("policy", "set", "p", "--streams", "*/*", "--storage-class", "GLACIER"),
            "--storage-class: goes with --storage-class-after",
        ),
        (("truncate", "orders"), "say either --to OFFSET or --before TIME"),
        (("truncate", "orders", "--to", "1", "--before", "-1d"), "say either --to OFFSET or --before TIME"),
        (("truncate", "orders", "--before", "soon", "--yes"), "--before"),
        (("delete", "orders", "--grace", "soon", "--yes"), "--grace: 'soon' is not a duration"),
        (("delete", "orders", "--all", "--incarnation", "x"), "--all"),
        (("delete", "orders"), "--yes: there is no terminal to ask at: delete"),
        (("hold", "put", "orders", "--reason", "x", "--offsets", "1-2"), "not A:B"),
        (("hold", "put", "orders", "--reason", "x", "--offsets", "2:2"), "no offset is in it"),
        (("hold", "put", "orders"), "--reason"),
        (("restore", "orders"), "--offsets"),
        (("policy", "set", "p", "--streams", "\udcff/*"), "not text that UTF-8 can hold"),
        (("policy", "set", "p", "--streams", "*/" + "x" * 999), "has 1001 bytes, of 1000 at most"),
        (("policy", "set", "p", "--streams", "*/*", "--priority", str(1 << 63)), "priority: 9223372036854775808"),
        (("policy", "set", "p", "--streams", "*/*", "--max-size", "9" * 40), "max_bytes"),
        (("policy", "rm", "\udcff"), "name"),
        (("hold", "put", "orders", "--reason", "\udcff"), "not text that UTF-8 can hold"),
        (("hold", "put", "orders", "--reason", "ä" * 501), "has 1002 bytes, of 1000 at most"),
        (("truncate", "orders", "--to", "4", "--yes", "--by", "\udcff"), "not text that UTF-8 can hold"),
        (("delete", "orders", "--yes", "--by", "x" * 1001), "has 1001 bytes, of 1000 at most"),
    ],
)
def test_what_cannot_be_asked_is_refused_and_changes_nothing(
    scene: Scene, cli: Cli, arguments: tuple[str, ...], said: str
) -> None:
    head, objects = scene.head, set(scene.archive.objects.objects)
    done = cli(*arguments)
    assert done.code == 2
    assert said in done.err
    assert scene.head == head
    assert set(scene.archive.objects.objects) == objects


def test_how_long_ago_is_reckoned_by_awss_clock(scene: Scene, cli: Cli) -> None:
    """The machine's is a year ahead of the archive's."""
    scene.clock.now = TimestampMs(scene.time_of(2) + DAY_MS + 1)
    (found,) = cli("truncate", "orders", "--before", "-1d", "--dry-run", "-o", "json").json
    assert found["objects"] == 3


@pytest.mark.parametrize("command", ["truncate orders --to 0", "retention run", "sweep"])
@pytest.mark.usefixtures("scene")
def test_nothing_is_asked_if_there_is_nothing_to_do(cli: Cli, command: str) -> None:
    assert cli(*command.split()).code == 0


def test_what_is_deleted_already_is_named_with_the_way_back(scene: Scene, cli: Cli) -> None:
    assert cli("delete", "orders", "--yes").code == 0
    deleted = scene.head
    done = cli("delete", "orders", "--yes")
    assert (done.code, "is deleted (`coldstream undelete`" in done.err) == (7, True)
    assert scene.head == deleted


@pytest.mark.parametrize("command", ["truncate --to 1", "restore --offsets 0:1", "retention run"])
def test_what_is_deleted_is_not_called_unknown(scene: Scene, cli: Cli, command: str) -> None:
    cli("delete", "orders", "--yes")
    done = cli(*command.split(), "orders", "--dry-run")
    assert (done.code, "is deleted (`coldstream undelete`" in done.err) == (7, True)


def test_the_same_deletion_twice_is_of_one_incarnation(scene: Scene, cli: Cli) -> None:
    """The newest, which a stream of the same name was before it, too."""
    table, newer = scene.archive.table, replace(STREAM, incarnation=Incarnation("__orders_1763700000000000001"))
    table.apply(change_to(Head(newer, revision=1)))
    assert cli("delete", "orders", "--yes", "--grace", "0").code == 0
    assert cli("delete", "orders", "--yes").code == 7
    assert scene.head is not None
    assert not scene.head.is_deleted
    assert cli("delete", "orders", "--yes", "--incarnation", INCARNATION).code == 0
    scene.wait_for_purge()
    cli("sweep", "--yes")  # the newer one can no longer be undeleted
    assert cli("undelete", "orders").out == "stream 'orders' in vhost '/' is back: 10 messages\n"
    assert not scene.head.is_deleted


@pytest.mark.parametrize("command", ["truncate --to 1", "delete", "undelete", "sweep", "hold list", "retention run"])
@pytest.mark.usefixtures("scene")
def test_a_stream_that_is_not_archived_is_not_found(cli: Cli, command: str) -> None:
    first, *others = command.split()
    name = ["list", "unknown"] if others == ["list"] else ["run", "unknown"] if others == ["run"] else ["unknown"]
    others = [] if name[0] in {"list", "run"} else others
    assert cli(first, *name, *others).code == 3


def test_retention_shows_what_it_would_do_and_does_it(scene: Scene, cli: Cli) -> None:
    cli("policy", "set", "old", "--streams", "*/*", "--max-size", str(sum(one.object_bytes for one in scene.log[2:])))
    done = cli("retention", "run", "--dry-run")
    assert done.code == 0
    assert done.out.splitlines()[1].split()[:4] == ["/", "orders", "old", "2"]
    assert "2 objects of" in done.err
    assert "would be removed" in done.err
    assert fragments(scene) == 5
    (found,) = cli("retention", "run", "orders", "--dry-run", "-o", "json").json
    assert (found["dry_run"], found["objects"], found["streams"][0]["first_offset"]) == (True, 2, 4)
    (found,) = cli("retention", "run", "--yes", "-o", "json").json
    assert (found["dry_run"], found["objects"], found["streams"][0]["first_offset"]) == (False, 2, 4)
    assert fragments(scene) == 3


def test_truncation_shows_what_it_would_do_and_does_it(scene: Scene, cli: Cli) -> None:
    done = cli("truncate", "orders", "--to", "3", "--dry-run")
    assert done.out.startswith("1 object of")
    assert "with 2 messages would be removed" in done.out
    assert "the first offset is 2 afterwards" in done.out
    (found,) = cli("truncate", "orders", "--to", "5", "--yes", "-o", "json").json
    assert (found["objects"], found["messages"], found["first_offset"]) == (2, 4, 4)
    assert "nothing is left" in cli("truncate", "orders", "--before", "now", "--yes").out
    assert fragments(scene) == 0
    event = list(scene.archive.table.journal(INCARNATION))[-1]
    assert (event.detail, event.by) == ("truncated before now", "me")


def test_a_hold_is_put_listed_obeyed_and_released(scene: Scene, cli: Cli) -> None:
    done = cli("hold", "put", "orders", "--offsets", "2:4", "--reason", "case 17", "--by", "counsel")
    assert done.code == 0
    assert "offsets 2 to 3" in done.out
    assert "no S3 Object Lock" in done.err
    (hold,) = scene.archive.table.holds(INCARNATION)
    assert (hold.reason, hold.by) == ("case 17", "counsel")
    heads, row = cli("hold", "list").out.splitlines()
    assert heads.split()[:3] == ["vhost", "stream", "id"]
    assert row.split()[:5] == ["/", "orders", hold.id, "2", "4"]
    (listed,) = cli("hold", "list", "orders", "-o", "json").json
    assert (listed["id"], listed["next_offset"]) == (hold.id, 4)
    assert f"stopped by hold {hold.id}: case 17" in cli("truncate", "orders", "--to", "10", "--yes").out
    assert fragments(scene) == 4
    for how in ("--yes", "--dry-run"):
        refused = cli("delete", "orders", how)
        assert (refused.code, "case 17" in refused.err) == (7, True)
    assert cli("hold", "release", "orders", "other").code == 3
    assert cli("hold", "release", "orders", hold.id).code == 0
    assert cli("hold", "list").out.splitlines()[1:] == []


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_bucket_that_cannot_be_asked_for_its_lock_is_told(
    scene: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.setattr(scene.archive.objects, "capabilities", lambda: BucketCapabilities(object_lock=None))
    done = cli("hold", "put", "orders", "--reason", "case 17", "-o", output)
    assert (done.code, "s3:GetBucketObjectLockConfiguration" in done.err) == (0, True)
    assert "has no S3 Object Lock" not in done.err
    (hold,) = scene.archive.table.holds(INCARNATION)
    released = cli("hold", "release", "orders", hold.id, "-o", output)
    assert (released.code, "s3:GetBucketObjectLockConfiguration" in released.err) == (0, True)


def test_a_hold_locks_the_objects_of_a_bucket_that_can(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(object_lock=True)
    open_on(scene, monkeypatch)
    assert "S3 legal holds: 5 objects put, 0 objects released" in cli("hold", "put", "orders", "--reason", "case").err
    (hold,) = scene.archive.table.holds(INCARNATION)
    (released,) = cli("hold", "release", "orders", hold.id, "-o", "json").json
    assert released["released_objects"] == 5


def test_a_stream_is_deleted_undeleted_and_purged(scene: Scene, cli: Cli) -> None:
    done = cli("delete", "orders", "--dry-run")
    assert done.out.splitlines()[1].split()[:4] == ["/", "orders", INCARNATION, "5"]
    assert "5 objects would be removed after the grace" in done.err
    assert cli("delete", "orders", "--yes").code == 0
    head = scene.head
    assert head is not None
    assert head.purge_at == scene.clock.now + DEFAULT_GRACE_MS
    assert "is back: 10 messages" in cli("undelete", "orders").out
    assert cli("undelete", "orders").code == 7
    (found,) = cli("delete", "orders", "--all", "--grace", "0", "--yes", "-o", "json").json
    assert found["streams"][0]["purge_at"] == scene.clock.now
    assert "running" in cli("sweep", "--dry-run").out
    assert cli("sweep", "--yes").code == 0
    refused = cli("undelete", "orders")
    assert (refused.code, "deleted for good" in refused.err) == (7, True)
    scene.clock.pass_ms(GRACE_MS)
    assert "5 objects of" in cli("sweep", "--dry-run").err
    (found,) = cli("sweep", "orders", "--yes", "-o", "json").json
    assert (found["dry_run"], found["objects"]) == (False, 5)
    scene.wait_for_purge()
    assert "purged" in cli("sweep", "--yes").out
    assert scene.live == set()


def test_plural_forms_are_right(scene: Scene, cli: Cli) -> None:
    cli("truncate", "orders", "--to", "2", "--yes")
    scene.clock.pass_ms(GRACE_MS)
    done = cli("sweep", "--yes")
    assert "1 object of" in done.err
    assert "was deleted, in 1 stream" in done.err


def test_a_sweep_that_was_refused_something_says_so_by_its_exit_code(
    scene: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("truncate", "orders", "--to", "2", "--yes")
    scene.clock.pass_ms(GRACE_MS)
    key = min(scene.live)
    refusal = DeleteReport((), (DeleteFailure(key, "AccessDenied"),))
    monkeypatch.setattr(scene.archive.objects, "delete_many", lambda _, **__: refusal)
    done = cli("sweep", "--yes")
    assert (done.code, f"not deleted: {key}: AccessDenied" in done.err) == (6, True)


def test_a_dry_run_of_the_sweep_says_that_versions_stay(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    open_on(Scene(versioned=True), monkeypatch)
    assert "the bucket keeps versions" in cli("sweep", "--dry-run").err
    open_on(Scene(), monkeypatch)
    assert "the bucket keeps versions" not in cli("sweep", "--dry-run").err


def test_a_dry_run_of_retention_says_what_moving_costs(scene: Scene, cli: Cli) -> None:
    cli("policy", "set", "cold", "--streams", "*/*", "--storage-class", "STANDARD_IA", "--storage-class-after", "0")
    assert "5 objects would be moved, which costs 0.000152 once" in cli("retention", "run", "--dry-run").err
    cli("retention", "run", "--yes")
    cli("policy", "set", "cold", "--streams", "*/*", "--storage-class", "GLACIER_IR", "--storage-class-after", "0")
    (found,) = cli("retention", "run", "--dry-run", "-o", "json").json
    read = sum(one.object_bytes for one in scene.log) * 0.01 / (1 << 30)
    # Two POSTs and a COPY in GLACIER_IR, and a GET in STANDARD_IA.
    assert found["streams"][0]["moving_cost_usd"] == pytest.approx(5 * (3 * 0.02 + 0.001) / 1000 + read, abs=1e-6)


def test_cold_offsets_are_restored(scene: Scene, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("policy", "set", "cold", "--streams", "*/*", "--storage-class", "DEEP_ARCHIVE", "--storage-class-after", "0")
    cli("retention", "run", "--yes")
    done = cli("restore", "orders", "--offsets", "0:4", "--dry-run")
    assert "0 of 2 objects" in done.out
    assert "would cost about" in done.out
    (found,) = cli("restore", "orders", "--offsets", "0:4", "--days", "3", "--yes", "-o", "json").json
    assert (found["requested_objects"], found["restoring_objects"], found["readable_objects"]) == (2, 2, 0)
    monkeypatch.setattr("coldstream.cli.restore.time.sleep", lambda _: scene.archive.objects.finish_restores())
    done = cli("restore", "orders", "--offsets", "0:4", "--days", "3", "--wait")
    assert "2 of 2 objects" in done.out
    (found,) = cli("restore", "orders", "--offsets", ":", "--status", "-o", "json").json
    assert (found["objects"], found["readable_objects"]) == (5, 2)


def test_commands_work_on_the_archive_that_the_environment_names(archived: SmallFragments, cli: Cli) -> None:
    before = archived.log()
    assert cli("policy", "set", "none", "--streams", "*/*", "--max-age", "100000d").code == 0
    (found,) = cli("retention", "run", "--yes", "-o", "json").json
    assert found["objects"] == 0
    (removed,) = cli("truncate", "orders", "--to", str(before[1].next_offset), "--yes", "-o", "json").json
    assert removed["objects"] == 2
    assert cli("hold", "put", "orders", "--reason", "case").code == 0
    (swept,) = cli("sweep", "--yes", "-o", "json").json
    assert swept["objects"] == 0
    assert len(archived.log()) == len(before) - 2


def test_deleting_what_is_held_is_refused_by_the_dry_run_too(scene: Scene, cli: Cli) -> None:
    cli("hold", "put", "orders", "--reason", "case 17")
    for arguments in (("--dry-run",), ("--yes",), ("--all", "--yes")):
        refused = cli("delete", "orders", *arguments)
        assert (refused.code, refused.out, "case 17" in refused.err) == (7, "", True)


def test_a_sweep_says_when_the_next_objects_are_due(cli: Cli, scene: Scene) -> None:
    assert "due" not in cli("sweep", "--yes").err
    cli("truncate", "orders", "--to", "2", "--yes")
    done = cli("sweep", "--dry-run")
    assert "0 objects of 0 B would be deleted, in 1 stream, 0.00 a month saved" in done.err
    assert "the next objects are due at " in done.err
    scene.clock.pass_ms(GRACE_MS)
    assert "due" not in cli("sweep", "--yes").err


@pytest.mark.usefixtures("scene")
def test_a_wrong_duration_is_told_as_it_was_typed(cli: Cli) -> None:
    refused = cli("policy", "set", "p", "--streams", "*/*", "--max-age", "-5d")
    assert (refused.code, "--max-age: '-5d' is not a duration" in refused.err) == (2, True)


@pytest.mark.usefixtures("scene")
def test_what_is_wrong_with_a_value_is_told_by_the_name_of_its_option(cli: Cli) -> None:
    assert "coldstream: --streams: 'orders' is not" in cli("policy", "set", "p", "--streams", "orders").err


@pytest.mark.usefixtures("scene")
def test_an_incarnation_that_is_not_there_is_named(cli: Cli) -> None:
    refused = cli("delete", "orders", "--incarnation", "__orders_1", "--yes")
    assert (refused.code, "no incarnation '__orders_1' of stream 'orders'" in refused.err) == (3, True)


@pytest.mark.usefixtures("scene")
def test_without_holds_the_list_says_so(cli: Cli) -> None:
    assert "nothing is held" in cli("hold", "list").err


def test_a_direct_stream_whose_name_is_taken_is_not_brought_back(scene: Scene, cli: Cli) -> None:
    head = scene.head
    assert head is not None
    scene.archive.table.apply(change_to(replace(head, revision=head.revision + 1, appender=Appender())))
    assert cli("delete", "orders", "--yes").code == 0
    later = replace(STREAM, incarnation=Incarnation("__orders_1763700000000000009"))
    add_name(scene.archive.table, DirectName(later))
    refused = cli("undelete", "orders")
    assert (refused.code, "there is already a stream 'orders' in vhost '/'" in refused.err) == (7, True)
    remove_name(scene.archive.table, later)
    assert cli("undelete", "orders").code == 0


@pytest.mark.parametrize("command", [("delete",), ("undelete",), ("truncate", "--to", "1")], ids=str)
def test_a_logical_name_is_no_stream(command: tuple[str, ...], scene: Scene, cli: Cli) -> None:
    name, *options = command
    found = sample_map(name=STREAM.name)
    map_writer(scene.stores.table).write(replace(found, vhost=STREAM.vhost), ShardEventKind.DECLARE, TimestampMs(1))
    before = fragments(scene)
    refused = cli(name, STREAM.name, "--vhost", STREAM.vhost, *options)
    assert refused.code == 2
    assert "is sharded stream" in refused.err
    assert "coldstream shards show" in refused.err
    assert fragments(scene) == before


def test_a_partition_is_truncated_but_not_deleted(scene: Scene, cli: Cli) -> None:
    held = replace(sample_map(1, name="logical"), vhost=STREAM.vhost)
    held = replace(held, partitions=(replace(held.partitions[0], name=STREAM.name),))
    map_writer(scene.stores.table).write(held, ShardEventKind.DECLARE, TimestampMs(1))
    refused = cli("delete", STREAM.name, "--vhost", STREAM.vhost, "--yes")
    assert refused.code == 2
    assert "is a partition of sharded stream 'logical'" in refused.err
    assert cli("truncate", STREAM.name, "--vhost", STREAM.vhost, "--to", "1", "--yes").code == 0
