"""The published vectors: what Erlang and the clients' own code make of keys."""

from __future__ import annotations

import json
from pathlib import Path

from coldstream.routing.detect import rstream_partition_of
from coldstream.routing.modulus import modulus_hash
from coldstream.routing.murmur3 import partition_of
from tests.routing.make_vectors import PARTITIONS, digest, keys

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())


def test_hashes_of_exchanges_are_those_of_erlang() -> None:
    (of_erlang,) = (found for what, found in VECTORS.items() if what.startswith("phash2"))
    assert len(of_erlang) > 10
    assert all(modulus_hash(*some) == found for some, found in of_erlang)


def test_partitions_are_those_of_the_clients_themselves() -> None:
    (clients,) = (found for what, found in VECTORS.items() if "SHA-256" in what)
    assert len(clients) == 3
    for found in clients.values():
        assert {key: partition_of(key, PARTITIONS) for key in found["partitions"]} == found["partitions"]
        assert found["digest"] == digest([partition_of(key, PARTITIONS) for key in keys()])


def test_rstream_is_another_hash() -> None:
    (of_rstream,) = (found for what, found in VECTORS.items() if "rstream's" in what)
    assert {key: rstream_partition_of(key, PARTITIONS) for key in of_rstream} == of_rstream
    assert {key: partition_of(key, PARTITIONS) for key in of_rstream} != of_rstream
