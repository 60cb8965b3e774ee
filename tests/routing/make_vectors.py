"""Write `vectors.json` anew: what Erlang and the clients themselves make of keys. See clients/README.md.

python tests/routing/make_vectors.py NAME=COMMAND...    such as java="java -cp … com.rabbitmq.stream.impl.Partitions"
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "layers/coldstream/python")]

from coldstream.routing.detect import rstream_partition_of  # noqa: E402  after the path
from coldstream.routing.phash2 import RANGE  # noqa: E402  after the path
from tests.support.erlang import ask_erlang, in_erlang  # noqa: E402  after the path

VECTORS = Path(__file__).with_name("vectors.json")
PARTITIONS = 4093
SOME = ["größe", "日本", "🎉", "é", "", "plain", "Ünïcödé-ключ"]
WRITTEN_OUT = ["", "a", "1234", "orders.eu", "user-42", "0123456789ab", "0123456789abc", *SOME[:4], *SOME[5:]]


def keys() -> list[str]:
    """The 10,000 keys of the digests: each in one line, lengths 6 to 250 bytes."""
    return [f"key-{number}-{SOME[number % 7]}{'x' * (number % 230)}" for number in range(10_000)]


def digest(partitions: list[int]) -> str:
    """The SHA-256 of numbers, one a line."""
    return hashlib.sha256("".join(f"{one}\n" for one in partitions).encode()).hexdigest()


def ask_client(command: list[str], of: list[str]) -> list[int]:
    """Return the partition of each key as a client chooses it."""
    text = "".join(f"{key}\n" for key in of)
    done = subprocess.run([*command, str(PARTITIONS)], input=text, capture_output=True, text=True, check=True)
    return list(map(int, done.stdout.split()))


def main() -> None:
    """Ask everybody, and write."""
    lists = [[key.encode()] for key in WRITTEN_OUT] + [[b"a", b"b"]]
    hashes = map(int, ask_erlang([f"phash2 {RANGE} {in_erlang(one)}." for one in lists]))
    clients = {}
    for argument in sys.argv[1:]:
        name, _, command = argument.partition("=")
        some = [key for key in WRITTEN_OUT if key]
        found = ask_client(shlex.split(command), [*some, *keys()])
        clients[name] = {
            "partitions": dict(zip(some, found, strict=False)),
            "digest": digest(found[len(some) :]),
        }
    vectors = {
        "phash2 of the list of routing keys, range 2^27": [
            [[key.decode() for key in one], found] for one, found in zip(lists, hashes, strict=True)
        ],
        f"partition of {PARTITIONS}, and SHA-256 of those of 10,000 keys": clients,
        f"partition of {PARTITIONS} by rstream's rule": {key: rstream_partition_of(key, PARTITIONS) for key in SOME},
    }
    VECTORS.write_text(json.dumps(vectors, ensure_ascii=False, indent=2) + "\n")


if __name__ == "__main__":
    main()
