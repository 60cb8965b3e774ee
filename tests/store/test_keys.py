from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from coldstream.manifest.cluster import Cluster
from coldstream.manifest.stream import Incarnation
from coldstream.store.keys import Keys
from coldstream.units import MAX_OFFSET, Offset

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
