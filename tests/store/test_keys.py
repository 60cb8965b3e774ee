from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest

from coldstream.errors import InvalidNameError
from coldstream.manifest.access import Grant
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.store.parsed_keys import ControlKind, KeyKind, ParsedKey
from coldstream.units import MAX_OFFSET, Epoch, Offset

LIFE = Incarnation("__orders_1763700000000000000")
KEYS = Keys("archive/")


def test_a_fragment_lies_under_the_hash_and_name_of_its_incarnation() -> None:
    hash8 = sha256(LIFE.encode()).hexdigest()[:8]
    assert KEYS.fragment(LIFE, Offset(42)) == f"archive/{hash8}_{LIFE}/data/00000000000000000042.fragment"
    assert Keys().fragment(LIFE, Offset(0)) == f"{hash8}_{LIFE}/data/00000000000000000000.fragment"


def test_a_generation_stands_behind_the_offset_unless_it_is_the_first() -> None:
    assert KEYS.fragment(LIFE, Offset(42), 3).endswith("/00000000000000000042.3.fragment")
    assert KEYS.fragment(LIFE, Offset(42), 0) == KEYS.fragment(LIFE, Offset(42))


def test_keys_of_one_stream_sort_by_offset() -> None:
    offsets = [Offset(n) for n in (0, 9, 10, 99, 10**19, MAX_OFFSET)]
    keys = [KEYS.fragment(LIFE, offset) for offset in offsets]
    assert keys == sorted(keys)


def test_incarnations_share_no_keys() -> None:
    one, other = Incarnation("a"), Incarnation("a_data")
    assert not KEYS.fragment(other, Offset(0)).startswith(KEYS.fragment(one, Offset(0)).rpartition("/")[0])


def test_a_staged_segment_has_its_offsets_in_its_key() -> None:
    key = KEYS.staged(LIFE, Offset(0), Offset(MAX_OFFSET))
    assert key == f"archive/staging/{LIFE}/00000000000000000000-18446744073709551615.segment"


def test_what_a_cluster_stages_lies_one_level_deeper() -> None:
    ours = replace(KEYS, cluster=Cluster("eu"))
    key = ours.staged(LIFE, Offset(0), Offset(9))
    assert key == f"archive/staging/eu/{LIFE}/00000000000000000000-00000000000000000009.segment"
    assert ours.fragment(LIFE, Offset(0)) == KEYS.fragment(LIFE, Offset(0))
    assert ours.quarantined(LIFE, Offset(0), "e") == KEYS.quarantined(LIFE, Offset(0), "e")


def test_the_key_of_a_staged_segment_tells_its_offsets() -> None:
    key = KEYS.staged(LIFE, Offset(7), Offset(MAX_OFFSET))
    assert key.startswith(KEYS.staging(LIFE))
    assert KEYS.staged_offsets(key) == (7, MAX_OFFSET)
    assert KEYS.staged_offsets(KEYS.fragment(LIFE, Offset(7))) is None
    assert KEYS.staged_offsets(f"{key}.json") is None


def test_a_quarantined_segment_is_told_from_others_by_its_etag() -> None:
    assert KEYS.quarantined(LIFE, Offset(7), '"0a1b-2"') == (
        f"archive/quarantine/{LIFE}/00000000000000000007-0a1b-2.segment"
    )
    assert KEYS.quarantined(LIFE, Offset(7), '"a"') != KEYS.quarantined(LIFE, Offset(7), '"b"')


def test_an_etag_cannot_lead_out_of_quarantine() -> None:
    key = KEYS.quarantined(LIFE, Offset(7), '"../../' + "x" * 500 + '"')
    assert key == f"archive/quarantine/{LIFE}/00000000000000000007-{'x' * 64}.segment"


RANGE = Offset(7), Offset(MAX_OFFSET + 1)
EU = replace(KEYS, cluster=Cluster("eu"))
GRANT = Grant("arn:aws:iam::123456789012:role/r", "%2F/*")

PARSED = {
    KEYS.fragment(LIFE, Offset(5)): ParsedKey(KeyKind.FRAGMENT, LIFE, Offset(5), generation=0),
    KEYS.fragment(LIFE, Offset(MAX_OFFSET), 12): ParsedKey(KeyKind.FRAGMENT, LIFE, Offset(MAX_OFFSET), generation=12),
    KEYS.staged(LIFE, *RANGE): ParsedKey(KeyKind.STAGED, LIFE, *RANGE),
    EU.staged(LIFE, *RANGE): ParsedKey(KeyKind.STAGED, LIFE, *RANGE, cluster=Cluster("eu")),
    KEYS.quarantined(LIFE, Offset(7), '"a-2"'): ParsedKey(KeyKind.QUARANTINED, LIFE, Offset(7), tag="a-2"),
    KEYS.quarantined(LIFE, Offset(7), '"a"') + ".json": ParsedKey(KeyKind.QUARANTINE_NOTE, LIFE, Offset(7), tag="a"),
    KEYS.stream_note(LIFE): ParsedKey(KeyKind.CONTROL, LIFE, control=ControlKind.STREAM),
    KEYS.floor_note(LIFE, 8, undeletion=True): ParsedKey(KeyKind.CONTROL, LIFE, control=ControlKind.FLOOR, revision=8),
    KEYS.floor_note(LIFE, 9): ParsedKey(KeyKind.CONTROL, LIFE, control=ControlKind.FLOOR, revision=9),
    KEYS.loss_note(LIFE, *RANGE): ParsedKey(KeyKind.CONTROL, LIFE, *RANGE, control=ControlKind.LOSS),
    KEYS.opening_note(LIFE, Epoch(9)): ParsedKey(KeyKind.CONTROL, LIFE, control=ControlKind.OPENING, epoch=9),
    KEYS.direct_note(LIFE, 9): ParsedKey(KeyKind.CONTROL, LIFE, control=ControlKind.DIRECT, revision=9),
    KEYS.wal_object("host-7", 3, 42): ParsedKey(KeyKind.WAL, writer="host-7", epoch=3, sequence=42),
    KEYS.hold_note(LIFE, "a_1"): ParsedKey(KeyKind.CONTROL, LIFE, control=ControlKind.HOLD, id="a_1"),
    KEYS.released_note(LIFE, "a_1"): ParsedKey(KeyKind.CONTROL, LIFE, control=ControlKind.RELEASE, id="a_1"),
    KEYS.erasure_note(LIFE, "a_1"): ParsedKey(KeyKind.CONTROL, LIFE, control=ControlKind.ERASURE, id="a_1"),
    **{
        key: ParsedKey(KeyKind.CONTROL, control=kind, id=key[-69:-5])
        for key, kind in (
            (KEYS.grant_note(GRANT), ControlKind.GRANT),
            (KEYS.policy_note("old"), ControlKind.POLICY),
            (KEYS.cluster_note("/", "orders"), ControlKind.CLUSTER),
        )
    },
}


@pytest.mark.parametrize("key", PARSED)
def test_every_key_is_read_back(key: str) -> None:
    assert KEYS.parse(key) == PARSED[key]
    assert Keys("archive/other/").parse(key) is None
    assert Keys().parse(key.removeprefix("archive/")) == PARSED[key]


@pytest.mark.parametrize("key", PARSED)
def test_a_key_that_differs_in_any_character_is_another(key: str) -> None:
    for at in range(len(key)):
        for text in ("", "%", "+", " ", "\n", "\u0660", "/", key[at].swapcase() + key[at]):
            other = key[:at] + text + key[at + 1 :]
            assert other == key or KEYS.parse(other) != PARSED[key]
    for end in ("\n", " ", "/", ".json.", "\0"):
        assert KEYS.parse(key + end) is None


@pytest.mark.parametrize(
    "wrong",
    [
        KEYS.fragment(LIFE, Offset(5)).replace(".fragment", ".0.fragment"),
        KEYS.fragment(LIFE, Offset(5)).replace(".fragment", ".01.fragment"),
        KEYS.fragment(LIFE, Offset(5)).replace(".fragment", f".{'9' * 900}.fragment"),
        KEYS.fragment(LIFE, Offset(MAX_OFFSET + 1)),
        KEYS.staged(LIFE, Offset(0), Offset(MAX_OFFSET + 2)),
        KEYS.fragment(LIFE, Offset(5)).replace("_1763", "_1764"),
        KEYS.fragment(LIFE, Offset(5)).replace("0", "\u0660"),
        KEYS.fragment(LIFE, Offset(5)).replace("/data/", "%2Fdata%2F"),
    ],
)
def test_what_nobody_would_write_is_no_key(wrong: str) -> None:
    assert KEYS.parse(wrong) is None


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\n", "x" * 129])
def test_an_id_cannot_lead_out_of_its_place(name: str) -> None:
    for key in (KEYS.hold_note, KEYS.released_note, KEYS.erasure_note):
        with pytest.raises(InvalidNameError):
            key(LIFE, name)
