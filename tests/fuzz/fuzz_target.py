"""A parser as a fuzzer sees it: bytes go in, and nothing but its own errors may come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from coldstream.errors import ColdstreamError, CorruptionError, InvalidInputError
from coldstream.units import KIB, MIB

SOURCE = "the input"
"""What targets give for the name of the file, key or item: an error has to say it."""

_Value = TypeVar("_Value")


class BrokenPromiseError(AssertionError):
    """A parser took an input, and what it made of it contradicts itself."""


@dataclass(frozen=True, slots=True)
class FuzzTarget:
    """A parser, or several of one kind. `run` calls it; `errors` are those that it may raise.

    An error of damaged bytes has to name `source`. `seeds` are valid inputs, `max_bytes` is the size of inputs. Memory
    of an input may be `memory_bytes`, and `memory_factor` times its size; the lines of Python that it takes `lines`,
    and `lines_a_byte` times its size. `make test` has `runs` of the fuzzer, which take a second or two.
    """

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    errors: tuple[type[ColdstreamError], ...]
    source: str = SOURCE
    max_bytes: int = 4 * KIB
    runs: int = 10_000
    memory_bytes: int = MIB
    memory_factor: int = 200
    lines: int = 2000
    lines_a_byte: int = 60

    def takes(self, data: bytes) -> bool:
        """Run it on an input; tell whether it took the input. Any error but its own comes out."""
        try:
            self.run(data)
        except self.errors as err:
            if isinstance(err, CorruptionError) and (self.source not in err.source or err.position < 0):
                raise BrokenPromiseError(f"an error that does not name the place: {err}") from err
            return False
        return True


def same(found: _Value, expected: _Value) -> None:
    """Hold what a parser gave against what it should have."""
    if found != expected:
        raise BrokenPromiseError(f"{found!r:.500} is not {expected!r:.500}")


def choose(data: bytes, choices: Sequence[_Value]) -> tuple[_Value, bytes]:
    """Let the first byte choose one of several parsers; return it, and the input without that byte."""
    return choices[(data[0] if data else 0) % len(choices)], data[1:]


def chosen(number: int, data: bytes) -> bytes:
    """Return an input by which `choose` takes the parser of a number."""
    return bytes((number,)) + data


CORRUPT = (CorruptionError,)
INVALID = (InvalidInputError,)
