"""`erlang:phash2`, held against Erlang's own."""

from __future__ import annotations

import random
import shutil

import pytest

from coldstream.errors import InvalidInputError
from coldstream.routing.phash2 import RANGE, UNDEFINED, Term, phash2
from tests.support.erlang import ask_erlang, in_erlang
from tests.support.fixtures import do_without

EDGES: list[Term] = [
    *[number + near for number in (0, 255, 256, 2**27, -(2**27), 2**59, -(2**59)) for near in (-1, 0, 1)],
    *[sign * (2**bits + near) for bits in (31, 32, 63, 64, 127, 128) for near in (-1, 0, 1) for sign in (1, -1)],
    *[bytes(range(length)) for length in range(40)],
    b"\xff" * 255,
    "größe 日本 🎉".encode(),
    UNDEFINED,
    True,
    False,
    "exchange",
    "a_very_long_atom_that_carries_over_the_top_of_28_bits",
    [],
    (),
    [[]],
    ([],),
    [0],
    [1, 2, 3, 4],
    [1, 2, 3, 4, 5, b"x", 6, 7],
    [1, 2, 256, 3],
    [1, b"", 2],
    0.0,
    -0.0,
    1.5,
    -2.25e300,
    ("longstr", b"key"),
    ("long", 12345678901),
    ("resource", b"/", "queue", "größe".encode()),
]


def some_term(chance: random.Random, depth: int = 0) -> Term:
    """A term at random, with more of what is hashed when messages are routed."""
    kind = chance.randrange(10 if depth < 3 else 6)
    if kind < 2:
        return chance.randbytes(chance.choice((0, 1, 4, 8, 11, 12, 13, 24, chance.randrange(256))))
    if kind < 4:
        return chance.randint(-(2 ** (bits := chance.randrange(1, 200))), 2**bits)
    if kind == 4:
        return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz_", k=chance.randrange(1, 40)))
    if kind == 5:
        return chance.uniform(-1e9, 1e9)
    terms = [some_term(chance, depth + 1) for _ in range(chance.randrange(6))]
    return terms if kind < 8 else tuple(terms)


@pytest.mark.parametrize("range_", [1, 7, RANGE, 2**32])
def test_hashes_are_those_of_erlang(range_: int) -> None:
    if shutil.which("escript") is None:
        do_without("Erlang")
    chance = random.Random(range_)
    terms = EDGES + [some_term(chance) for _ in range(5000)]
    answers = ask_erlang([f"phash2 {range_} {in_erlang(term)}." for term in terms])
    assert [str(phash2(term, range_)) for term in terms] == answers


@pytest.mark.parametrize("range_", [0, -1, 2**32 + 1])
def test_a_range_that_erlang_refuses_is_refused(range_: int) -> None:
    with pytest.raises(InvalidInputError, match="range"):
        phash2(b"", range_)


def test_an_atom_of_other_letters_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="ASCII"):
        phash2("größe")
