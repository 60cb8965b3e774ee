"""`coldstream erase` on an archive in memory."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from coldstream.erase.run import Eraser
from coldstream.erase.selection import Selection
from coldstream.erase.value_digest import ValueDigest
from coldstream.format.amqp.message import Message
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.terminal.exits import ExitCode
from coldstream.units import Offset
from tests.cli.conftest import Cli
from tests.erase.archived import KEYS, MessageArchive, body_of, user_of
from tests.erase.stores import GRACE_MS, Erasing
from tests.support.archive import NOW


@pytest.fixture
def erasing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Erasing]:
    """Three fragments of 24 offsets, as the archive of the settings; the signals' handlers are put back."""
    archive = MessageArchive()
    for _ in range(3):
        archive.add(4)
    found = Erasing(archive)
    monkeypatch.setattr("coldstream.cli.erase.open_stores", found.stores)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield found
    for number, handler in handlers.items():
        signal.signal(number, handler)


def erased(erasing: Erasing) -> set[int]:
    return {offset for offset, raw in erasing.archive.read().items() if raw == ERASED_MESSAGE}


def test_messages_are_erased_by_offsets(erasing: Erasing, cli: Cli) -> None:
    done = cli("erase", "orders", "--offsets", "5:30", "--yes", "--by", "alice")
    assert done.code == 0, done.err
    assert erased(erasing) == set(range(5, 30))
    assert "25 messages erased, 2 fragments of 2 written anew" in done.out
    assert "the old objects go with the first sweep after 2025-11-22" in done.out
    assert "in 2 h" in done.out


def test_offsets_without_an_end_reach_up_to_the_tail(erasing: Erasing, cli: Cli) -> None:
    assert cli("erase", "orders", "--offsets", "60:", "--yes").code == 0
    assert erased(erasing) == set(range(60, 72))


def test_conditions_must_all_be_met(erasing: Erasing, cli: Cli) -> None:
    done = cli("erase", "orders", "--offsets", "0:24", "--property", "properties.message-id=user-3", "--yes")
    assert done.code == 0, done.err
    assert erased(erasing) == {offset for offset in range(24) if user_of(offset) == "user-3"}


def old_rule(message: Message) -> bool:
    return message.offset % 10 == 0


def test_a_function_of_the_user_chooses(erasing: Erasing, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rules", SimpleNamespace(old=old_rule))  # type: ignore[arg-type]
    assert cli("erase", "orders", "--where", "rules:old", "--yes").code == 0
    assert erased(erasing) == {offset for offset in erasing.archive.published if offset % 10 == 0}


def test_a_value_is_shown_nowhere_and_stored_nowhere(erasing: Erasing, cli: Cli) -> None:
    for options in (["--dry-run"], ["--yes", "-o", "json"]):
        done = cli("erase", "orders", "--key", "user-3", *options)
        assert done.code == 0
        assert "user-3" not in done.out + done.err
    assert "user-3" not in repr(erasing.archive.table.erasures(erasing.archive.stream.incarnation))


def test_a_dry_run_says_what_it_would_do_and_changes_nothing(erasing: Erasing, cli: Cli) -> None:
    before = dict(erasing.archive.objects.objects)
    done = cli("erase", "orders", "--offsets", "5:30", "--dry-run")
    assert done.code == 0
    assert "25 messages in 2 fragments would be erased, offsets 5 to 29" in done.out
    assert "US dollars" in done.out
    (found,) = cli("erase", "orders", "--offsets", "5:30", "--dry-run", "-o", "json").json
    assert (found["dry_run"], found["messages"], found["fragments"], found["gap_count"]) == (True, 25, 2, 0)
    assert erasing.archive.objects.objects == before


def test_programs_get_the_report_as_json(erasing: Erasing, cli: Cli) -> None:
    (found,) = cli("erase", "orders", "--offsets", "5:30", "--yes", "-o", "json").json
    assert (found["messages"], found["is_done"], found["due_at"]) == (25, True, NOW + GRACE_MS)
    (stored,) = erasing.archive.table.erasures(erasing.archive.stream.incarnation)
    assert (found["id"], found["digest"]) == (stored.id, stored.digest)


def test_the_grace_may_be_shorter(erasing: Erasing, cli: Cli) -> None:
    (found,) = cli("erase", "orders", "--offsets", "5:30", "--grace", "60s", "--yes", "-o", "json").json
    assert found["due_at"] == NOW + 60_000


def test_nothing_is_erased_without_a_yes(erasing: Erasing, cli: Cli) -> None:
    done = cli("erase", "orders", "--offsets", "5:30")
    assert done.code == ExitCode.USAGE
    assert "--yes" in done.err
    assert erased(erasing) == set()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "say --offsets"),
        (["--offsets", "30:5"], "no offset is in it"),
        (["--offsets", "5"], "not A:B"),
        (["--offsets", "0:999"], "tail, 72"),
        (["--property", "alice"], "FIELD=VALUE"),
        (["--property", "body=alice"], "properties.NAME"),
        (["--property", "properties.user_id=al\udcffce"], "--property: the value is not UTF-8"),
        (["--filter-value", "\udcff"], "--filter-value: the value is not UTF-8"),
        (["--key", "\udcff"], "by --where"),
        (["--where", "no_such_module:old"], "cannot be imported"),
        (["--offsets", "0:5", "--grace", "soon"], "--grace"),
        (["--resume", "--offsets", "0:5"], "leave out all but --where"),
    ],
)
def test_what_cannot_be_selected_is_wrong_usage(erasing: Erasing, cli: Cli, options: list[str], problem: str) -> None:
    done = cli("erase", "orders", *options, "--yes")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert problem in done.err
    assert erased(erasing) == set()


def test_another_copy_is_named_with_the_option_that_deletes_it(erasing: Erasing, cli: Cli) -> None:
    key = KEYS.staged(erasing.archive.stream.incarnation, Offset(0), Offset(24))
    erasing.archive.objects.objects[key] = body_of(3)
    refused = cli("erase", "orders", "--offsets", "0:5", "--yes")
    assert refused.code == ExitCode.REFUSED
    assert key in refused.err
    assert "--with-quarantine" in refused.err
    done = cli("erase", "orders", "--offsets", "0:5", "--with-quarantine", "--yes")
    assert done.code == 0
    assert f"deleted first: staged segment {key}" in done.err
    assert key not in erasing.archive.objects.objects


def test_what_was_interrupted_goes_on(erasing: Erasing, cli: Cli) -> None:
    selection = Selection(key=ValueDigest.of("user-3"))
    Eraser(erasing.stores()).begin(erasing.archive.stream, selection, reason="", by="alice")
    done = cli("erase", "orders", "--resume")
    assert done.code == 0, done.err
    assert erased(erasing) == {offset for offset in erasing.archive.published if user_of(offset) == "user-3"}
    assert "no erasure of stream 'orders'" in cli("erase", "orders", "--resume").err


def test_an_interrupted_function_has_to_be_named_again(
    erasing: Erasing, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rules", SimpleNamespace(old=old_rule))  # type: ignore[arg-type]
    selection = Selection(function="rules:old").with_predicate(old_rule)
    Eraser(erasing.stores()).begin(erasing.archive.stream, selection, reason="", by="alice")
    refused = cli("erase", "orders", "--resume")
    assert (refused.code, "rules:old" in refused.err) == (ExitCode.USAGE, True)
    assert cli("erase", "orders", "--resume", "--where", "rules:old").code == 0
    assert len(erased(erasing)) == 8


def test_a_signal_ends_it_between_two_calls_and_says_how_to_go_on(
    erasing: Erasing, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = erasing.archive.objects.put_new

    def interrupted(*arguments: object, **named: object) -> None:
        put(*arguments, **named)  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(erasing.archive.objects, "put_new", interrupted)
    done = cli("erase", "orders", "--offsets", "0:72", "--yes")
    assert done.code == ExitCode.INTERRUPTED
    assert "coldstream erase orders --resume" in done.err
    monkeypatch.undo()
    monkeypatch.setattr("coldstream.cli.erase.open_stores", erasing.stores)
    assert cli("erase", "orders", "--resume").code == 0
    assert erased(erasing) == set(erasing.archive.published)
