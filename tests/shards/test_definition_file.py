"""The definition file: what it may say, and how it is refused."""

from __future__ import annotations

import json

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.manifest.shard_map import ShardHash, ShardKind
from coldstream.shards.definition import ShardDefinition
from coldstream.shards.definition_file import definition_of, definitions_of

EVERY_KEY = """
[[shards]]
name = "orders"
kind = "super-stream"
shards = 4
replicas = 3
max_age = "7D"
max_length_bytes = "20GB"
max_segment_bytes = 500000000

[[shards]]
name = "weighted"
vhost = "shop"
kind = "queues"
shards_per_node = 2
hash = "consistent"
weights = [1, 2]
header = "customer"

[[shards]]
name = "regions"
kind = "super-stream"
hash = "binding-key"
binding_keys = ["eu", "us", "straße"]
"""


def test_every_key_is_read() -> None:
    orders, weighted, regions = definitions_of(EVERY_KEY, source="test")
    assert orders == ShardDefinition(
        "orders",
        ShardKind.SUPER_STREAM,
        ShardHash.MURMUR3,
        shards=4,
        replicas=3,
        max_age="7D",
        max_length_bytes=20_000_000_000,
        max_segment_bytes=500_000_000,
    )
    assert orders.stream_arguments == {
        "x-initial-cluster-size": 3,
        "x-max-age": "7D",
        "x-max-length-bytes": 20_000_000_000,
        "x-stream-max-segment-size-bytes": 500_000_000,
    }
    assert (weighted.vhost, weighted.weights, weighted.hash_header) == ("shop", (1, 2), "customer")
    assert (regions.shards, regions.binding_keys) == (3, ("eu", "us", "straße"))


def test_json_says_the_same() -> None:
    entries = [json.loads(one.to_text()) for one in definitions_of(EVERY_KEY, source="test")]
    assert definitions_of(json.dumps({"shards": entries}), source="test") == definitions_of(EVERY_KEY, source="test")


def test_the_text_of_a_map_is_read_back() -> None:
    for one in definitions_of(EVERY_KEY, source="test"):
        assert definition_of(one.to_text()) == one


def test_the_text_is_canonical() -> None:
    one = definitions_of('[[shards]]\nshards = 2\nvhost = "/"\nkind = "streams"\nname = "a"', source="test")[0]
    assert one.to_text() == '{"hash":"modulus","kind":"streams","name":"a","shards":2}'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("shards = 2", "'a': kind: is missing"),
        ('kind = "stream"\nshards = 2', "'a': kind: 'stream' is not one of super-stream"),
        ('kind = "streams"', "'a': shards: is missing, or shards_per_node"),
        ('kind = "streams"\nshards = 2\nshards_per_node = 1', "'a': shards: contradicts shards_per_node"),
        ('kind = "super-stream"\nshards_per_node = 1', "'a': shards_per_node: is for kinds streams and queues"),
        ('kind = "streams"\nshards = 0', "'a': shards: 0 is not 1 to 1024"),
        ('kind = "streams"\nshards = 1025', "'a': shards: 1025 is not 1 to 1024"),
        ('kind = "streams"\nshards = true', "'a': shards: 'True' is not a whole number"),
        ('kind = "streams"\nshards = "2"', "'a': shards: '2' is not a whole number"),
        ('kind = "streams"\nshards = 2\nhash = "murmur3"', "'a': hash: murmur3 is not for streams"),
        ('kind = "super-stream"\nshards = 2\nhash = "random"', "'a': hash: random is not for super-stream"),
        ('kind = "super-stream"\nshards = 2\nhash = "sha"', "'a': hash: 'sha' is not one of"),
        ('kind = "super-stream"\nhash = "binding-key"', "'a': binding_keys: is missing"),
        ('kind = "super-stream"\nbinding_keys = ["x"]', "'a': binding_keys: is for hash binding-key"),
        (
            'kind = "super-stream"\nhash = "binding-key"\nbinding_keys = ["x", "x"]',
            "'a': binding_keys: has a key twice",
        ),
        ('kind = "super-stream"\nhash = "binding-key"\nbinding_keys = [1]', "'a': binding_keys: '1' is not a text"),
        ('kind = "super-stream"\nhash = "binding-key"\nbinding_keys = ["x"]\nshards = 2', "'a': shards: is 2"),
        ('kind = "streams"\nshards = 2\nweights = [1, 2]', "'a': weights: is for hash consistent"),
        ('kind = "streams"\nshards = 2\nhash = "consistent"\nweights = [1]', "'a': weights: has 1, for 2 shards"),
        ('kind = "streams"\nshards = 1\nhash = "consistent"\nweights = [0]', "'a': weights: 0 is not 1 to 1000"),
        ('kind = "streams"\nshards = 1\nheader = "h"', "'a': header: is for hash consistent"),
        (
            'kind = "streams"\nshards = 1\nhash = "consistent"\nheader = "h"\nproperty = "message_id"',
            "'a': header: contradicts property",
        ),
        ('kind = "streams"\nshards = 1\nhash = "consistent"\nproperty = "p"', "'a': property: 'p' is not one of"),
        ('kind = "queues"\nshards = 1\nmax_age = "7D"', "'a': max_age: is for kinds super-stream and streams"),
        ('kind = "streams"\nshards = 1\nmax_age = "7 days"', "'a': max_age: '7 days' is not a number and one of"),
        ('kind = "streams"\nshards = 1\nmax_length_bytes = "20 XB"', "'a': max_length_bytes: '20 XB' is not a size"),
        ('kind = "streams"\nshards = 1\nmax_segment_bytes = 8', "'a': max_segment_bytes: 8 is not"),
        ('kind = "streams"\nshards = 1\nreplicas = 0', "'a': replicas: 0 is not"),
        ('kind = "streams"\nshards = 1\ncolour = "red"', "'a': colour: is not known"),
        ('kind = "streams"\nshards = 1\nvhost = ""', "'a': vhost: '' is not a text"),
    ],
)
def test_a_slip_is_refused_with_its_entry_and_key(text: str, told: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        definitions_of(f'[[shards]]\nname = "a"\n{text}', source="shards.toml")
    assert str(refused.value).startswith(f"shards.toml: {told}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no entry"),
        ("shards = 3", "has no entry"),
        ("[[shards", "cannot be read"),
        ("{", "cannot be read"),
        ('{"shards": [3]}', "entry 1: shards: is not a table"),
        ('[[shards]]\nkind = "streams"', "entry 1: name: is missing"),
        ('[[shards]]\nname = "amq.x"\nkind = "streams"\nshards = 1', "'amq.x': name: 'amq.x' begins with amq."),
        ('version = 1\n[[shards]]\nname = "a"\nkind = "streams"\nshards = 1', "version: is not known"),
        ('[[shards]]\nname = "a"\nkind = "streams"\nshards = 1\n' * 2, "'a' in vhost '/': is there twice"),
        ('{"shards": [{"name": "a", "name": "b", "kind": "streams", "shards": 1}]}', "'name' is there twice"),
    ],
)
def test_what_is_no_definition_file_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidSettingError, match=told):
        definitions_of(text, source="shards.toml")
