"""The table of kinds: it has every kind once, and the page shows it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.garbage.kinds import DAY_MS, HOUR_MS, KINDS, KindRule, ObjectKind, kind_of, least_age_ms
from coldstream.manifest.cluster import cluster
from coldstream.store.keys import Keys
from coldstream.units import Offset
from tests.store.samples import ORDERS

PAGE = Path(__file__).parents[2] / "docs/garbage.md"
HEADS = ("| kind | key | made by | garbage if | and older than |", "|---|---|---|---|---|")
KEYS = Keys("here/")
LIFE = ORDERS.incarnation
STAGED = KEYS.staged(LIFE, Offset(0), Offset(1))


def row(rule: KindRule) -> str:
    """Show a rule as the page does."""
    days = rule.least_age_ms // DAY_MS
    age = "" if rule.proof is None else f"{days} day{'s' if days > 1 else ''}"
    return f"| {rule.kind} | {rule.key} | {rule.maker} | {rule.proof or 'never'} | {age} |"


def test_the_page_shows_the_table_as_it_is() -> None:
    lines = PAGE.read_text().splitlines()
    start = lines.index(HEADS[0])
    assert lines[start : start + 2 + len(KINDS)] == [*HEADS, *map(row, KINDS)]
    assert lines[start + 2 + len(KINDS)] == ""


def test_every_kind_is_in_the_table_once() -> None:
    assert [rule.kind for rule in KINDS] == list(ObjectKind)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (KEYS.fragment(LIFE, Offset(0)), ObjectKind.FRAGMENT),
        (KEYS.fragment(LIFE, Offset(0), 3), ObjectKind.LATER_FRAGMENT),
        (STAGED, ObjectKind.STAGED),
        (Keys("here/", cluster("north")).staged(LIFE, Offset(0), Offset(1)), ObjectKind.STAGED),
        (KEYS.quarantined(LIFE, Offset(0), "etag"), ObjectKind.QUARANTINED),
        (KEYS.quarantined(LIFE, Offset(0), "etag") + ".json", ObjectKind.QUARANTINE_NOTE),
        (KEYS.stream_note(LIFE), ObjectKind.STREAM_CONTROL),
        (KEYS.loss_note(LIFE, Offset(0), Offset(1)), ObjectKind.STREAM_CONTROL),
        (KEYS.policy_note("a"), ObjectKind.ARCHIVE_CONTROL),
        ("here/", ObjectKind.UNKNOWN),
        (f"{STAGED}x", ObjectKind.UNKNOWN),
        (KEYS.fragment(LIFE, Offset(0)).replace(".fragment", ".00.fragment"), ObjectKind.UNKNOWN),
    ],
)
def test_a_key_tells_its_kind(key: str, kind: ObjectKind) -> None:
    assert kind_of(KEYS.parse(key)) is kind


def test_an_age_that_is_asked_for_shortens_the_wait_for_fragments_alone() -> None:
    assert least_age_ms(ObjectKind.FRAGMENT, 2 * HOUR_MS) == 2 * HOUR_MS
    assert least_age_ms(ObjectKind.STAGED, 2 * HOUR_MS) == 15 * DAY_MS
    assert least_age_ms(ObjectKind.UNFINISHED, 30 * DAY_MS) == 30 * DAY_MS
