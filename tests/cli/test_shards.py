"""`coldstream shards`, with a table and a broker in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.cli import shards, shards_options, shards_show
from coldstream.shards.memory_broker import MemoryShardBroker
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.open_archive import OpenArchive
from coldstream.store.settings import Settings
from tests.cli.conftest import Cli

DEFINITION = '[[shards]]\nname = "orders"\nkind = "queues"\nshards_per_node = 1\nhash = "random"\n'


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryShardBroker:
    found = MemoryShardBroker("rabbit@a", "rabbit@b")
    opened = OpenArchive(Settings("table", "bucket"), MemoryTable(), MemoryObjects(), Keys(""))  # type: ignore[arg-type]
    for module in (shards, shards_options, shards_show):
        monkeypatch.setattr(module, "open_archive", lambda: opened)
    monkeypatch.setattr(shards_options.ShardBrokers, "of", lambda _, __: found)
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shards.toml"
    path.write_text(DEFINITION)
    return path


def test_what_is_declared_is_listed_shown_and_well(cli: Cli, broker: MemoryShardBroker, file: Path) -> None:
    done = cli("shards", "apply", file)
    assert (done.code, done.out.splitlines()[-1]) == (
        0,
        "orders: write version 1 of the map, revision 2: version 1 is bound",
    )
    assert cli("shards", "apply").out == "orders: nothing to do\n"
    assert cli("shards", "list").out.splitlines()[1].split() == [
        "/",
        "orders",
        "queues",
        "random",
        "2",
        "1",
        "2",
        "settled",
    ]
    assert "sharding: orders - rabbit@b - 0" in cli("shards", "show", "orders").out
    assert [line.split()[2] for line in cli("shards", "history", "orders").out.splitlines()[1:]] == ["declare", "bind"]
    assert cli("shards", "status").out.splitlines()[1] == "  the broker is as the map says"
    assert broker.calls


def test_a_run_that_only_waits_does_not_say_that_there_is_nothing_to_do(
    cli: Cli, broker: MemoryShardBroker, tmp_path: Path
) -> None:
    path = tmp_path / "shards.toml"
    definition = '[[shards]]\nname = "orders"\nkind = "streams"\nshards_per_node = 1\n'
    path.write_text(definition)
    broker.running["rabbit@b"] = False
    assert cli("shards", "apply", path).code == 0
    (moving,) = broker.declared
    broker.running["rabbit@b"] = True

    def publish(method: str) -> None:
        if method == "end":
            broker.ends[moving] = broker.ends.get(moving, 0) + 1

    broker.on_call = publish
    waits = f"orders: waiting for {moving}: it to come to rest, as it is still written"
    assert cli("shards", "apply", path).out.splitlines()[-1] == waits
    assert cli("shards", "apply", path).out == f"{waits}\n"


def test_a_dry_run_says_would_and_does_nothing(cli: Cli, broker: MemoryShardBroker, file: Path) -> None:
    done = cli("shards", "apply", file, "--dry-run")
    assert done.code == 0
    assert all(line.startswith("orders: would ") for line in done.out.splitlines())
    assert broker.declared == {}
    assert cli("shards", "list", "-o", "json").json == []


def test_json_is_for_programs(cli: Cli, broker: MemoryShardBroker, file: Path) -> None:
    (applied,) = cli("shards", "apply", file, "-o", "json").json
    assert (applied["name"], applied["waiting"], applied["gone"], len(applied["done"])) == ("orders", [], [], 8)
    (shown,) = cli("shards", "show", "orders", "-o", "json").json
    assert shown["definition"] == {"hash": "random", "kind": "queues", "name": "orders", "shards_per_node": 1}
    broker.bound["orders.v1"].pop()
    done = cli("shards", "status", "orders", "-o", "json")
    assert done.code == 7
    assert [line["kind"] for line in done.json[0]["drift"]] == ["missing"]


def test_drift_and_nodes_that_are_gone_are_told_with_exit_code_7(
    cli: Cli, broker: MemoryShardBroker, file: Path
) -> None:
    cli("shards", "apply", file)
    broker.running["rabbit@b"] = False
    done = cli("shards", "apply")
    assert (done.code, done.err.startswith("orders: node rabbit@b does not run, with 1 of 2 partitions")) == (7, True)
    del broker.declared["sharding: orders - rabbit@a - 0"]
    done = cli("shards", "status")
    assert done.code == 7
    assert done.out.splitlines()[1].startswith("  missing: queue 'sharding: orders - rabbit@a - 0'")
    done = cli("shards", "apply")
    assert (done.code, "failed: orders: " in done.err) == (7, True)


def test_one_that_is_refused_does_not_keep_the_others(cli: Cli, broker: MemoryShardBroker, file: Path) -> None:
    cli("shards", "apply", file)
    file.write_text(DEFINITION.replace('"queues"', '"streams"') + DEFINITION.replace("orders", "clicks"))
    done = cli("shards", "apply", file)
    assert done.code == 7
    assert "it is of kind queues, and stays" in done.err
    assert "clicks" in broker.exchanges


def test_a_slip_in_the_file_is_wrong_usage(cli: Cli, broker: MemoryShardBroker, file: Path) -> None:
    file.write_text(DEFINITION + "colour = 'red'\n")
    done = cli("shards", "apply", file)
    assert done.code == 2
    assert "'orders': colour: is not known" in done.err
    assert broker.calls == []


def test_a_name_that_no_map_has_is_not_found(cli: Cli, broker: MemoryShardBroker) -> None:
    assert cli("shards", "show", "nothing").code == 3
    assert cli("shards", "status", "nothing").code == 3
    assert broker.calls == []
