"""The jump of x-consistent-hash, and its random numbers held against Erlang's own."""

from __future__ import annotations

import itertools
import random
import shutil
import struct

from coldstream.routing.jump import jump, uniform
from coldstream.routing.phash2 import UNDEFINED
from tests.support.erlang import ask_erlang
from tests.support.fixtures import do_without


def test_numbers_are_those_of_erlang() -> None:
    if shutil.which("escript") is None:
        do_without("Erlang")
    chance = random.Random(4)
    seeds = [0, 1, 2**21 - 1, 2**21, 2**27 - 1, -1, *[chance.randrange(2**27) for _ in range(500)]]
    answers = ask_erlang([f"uniform 40 {seed}." for seed in seeds])
    for seed, answer in zip(seeds, answers, strict=True):
        ours = [struct.unpack(">Q", struct.pack(">d", one))[0] for one in itertools.islice(uniform(seed), 40)]
        assert ours == list(map(int, answer.split())), seed


def test_one_more_bucket_moves_keys_only_into_it() -> None:
    keys = [f"key {number}".encode() for number in range(2000)]
    for buckets in range(1, 9):
        moved = [key for key in keys if jump(key, buckets) != jump(key, buckets + 1)]
        assert {jump(key, buckets + 1) for key in moved} == {buckets}
        assert len(moved) < 2 * len(keys) / (buckets + 1)


def test_the_first_of_a_list_counts_and_an_integer_is_a_seed() -> None:
    assert jump([b"a", b"b"], 100) == jump(b"a", 100)
    assert len({jump(number, 100) for number in range(500)}) > 90
    assert jump([], 100) in range(100)
    assert jump(UNDEFINED, 100) != jump(b"undefined", 100)
    assert jump(b"anything", 1) == 0
