from __future__ import annotations

import pytest

from coldstream.errors import InvalidNameError, InvalidQueryError
from coldstream.manifest.entry import Loss, Quarantine
from coldstream.manifest.stream import Incarnation
from coldstream.store.sortkeys import (
    LAST_EVENT,
    LAST_GAP,
    LAST_MISSING,
    LOG_HEAD,
    MISSING,
    REGISTRY,
    TIME_OF_HEAD,
    check_cursor,
    event_key,
    gap_key,
    log_key,
    missing_key,
    names_key,
    quarantine_key,
    registry_key,
    time_from,
    time_key,
)
from coldstream.units import MAX_OFFSET, MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, Offset, TimestampMs

LIFE = Incarnation("__orders_1763700000000000000")


def test_a_loss_and_a_quarantine_of_the_same_offsets_have_keys_of_their_own() -> None:
    first, following = Offset(5), Offset(10)
    assert missing_key(Loss(first, following, "", TimestampMs(0))) == f"loss#{5:020}-{10:020}"
    aside = Quarantine(first, following, "", TimestampMs(0), "", "")
    assert missing_key(aside) == quarantine_key(first, following) == f"quarantine#{5:020}-{10:020}"


def test_a_partition_in_order_is_journal_gaps_log_head_losses_and_quarantines() -> None:
    keys = [
        event_key(1),
        event_key(10),
        LAST_EVENT,
        gap_key(Offset(0)),
        gap_key(Offset(MAX_OFFSET)),
        LAST_GAP,
        log_key(Offset(1)),
        log_key(Offset(2)),
        log_key(Offset(10)),
        log_key(Offset(MAX_OFFSET)),
        log_key(Offset(MAX_OFFSET + 1)),
        LOG_HEAD,
        MISSING,
        missing_key(Loss(Offset(0), Offset(MAX_OFFSET), "", TimestampMs(0))),
        missing_key(Loss(Offset(MAX_OFFSET - 1), Offset(MAX_OFFSET), "", TimestampMs(0))),
        quarantine_key(Offset(0), Offset(1)),
        quarantine_key(Offset(0), Offset(2)),
        quarantine_key(Offset(MAX_OFFSET - 1), Offset(MAX_OFFSET)),
        LAST_MISSING,
    ]
    assert keys == sorted(keys)


def test_times_in_order_are_running_timestamps_then_offsets_then_the_head() -> None:
    keys = [
        time_from(TimestampMs(MIN_TIMESTAMP_MS)),
        time_key(TimestampMs(MIN_TIMESTAMP_MS), Offset(5)),
        time_key(TimestampMs(-1), Offset(MAX_OFFSET + 1)),
        time_from(TimestampMs(0)),
        time_key(TimestampMs(0), Offset(9)),
        time_key(TimestampMs(0), Offset(10)),
        time_from(TimestampMs(1)),
        time_key(TimestampMs(MAX_TIMESTAMP_MS), Offset(MAX_OFFSET + 1)),
        TIME_OF_HEAD,
    ]
    assert keys == sorted(keys)
    assert keys[1] == "00000000000000000000#00000000000000000005"


def test_no_incarnation_can_be_called_like_the_registry() -> None:
    assert "#" in REGISTRY


def test_the_registry_has_a_streams_incarnations_in_order_of_declaration() -> None:
    older = registry_key("/", "orders", Incarnation("__orders_1763700000000000000"))
    newer = registry_key("/", "orders", Incarnation("__orders_1763700000000000001"))
    assert older < newer
    assert older.startswith(names_key("/", "orders"))
    assert check_cursor(older) == older


def test_names_that_run_together_have_different_keys() -> None:
    keys = {names_key("a", "bc"), names_key("ab", "c"), names_key("1", "1:a"), names_key("11", ":a")}
    assert len(keys) == 4


@pytest.mark.parametrize(("vhost", "name"), [("", "x"), ("x", ""), ("x" * 256, "x"), ("x", "é" * 128), ("x", "\udc80")])
def test_names_that_cannot_be_have_no_key(vhost: str, name: str) -> None:
    with pytest.raises(InvalidNameError):
        names_key(vhost, name)


@pytest.mark.parametrize("cursor", ["", "#", "0" * 64, "0" * 63 + "#a", "0" * 64 + "#a\n", "A" * 64 + "#a"])
def test_a_cursor_of_another_form_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidQueryError) as caught:
        check_cursor(cursor)
    assert caught.value.field == "cursor"
