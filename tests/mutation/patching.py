"""Put the code of a mutant in the place of a module's own, in a process that has imported it."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType

from tests.mutation.mutants import Mutant, mutated

_Cache = type(cache(lambda: None))


def compiled(file: str, source: str, mutant: Mutant | None) -> CodeType:
    """Return the code of a module, with a mistake in it if one is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a mutant may well look odd
        return compile(source if mutant is None else mutated(source, mutant), file, "exec")


def changed_functions(own: CodeType, other: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """Return the functions that differ, each with what it becomes.

    None if what differs is done while the module is imported: then there is no function to change.
    """
    pairs = list(_pairs(own, other))
    if any(not _is_function(one) for one, _ in pairs):
        return None
    return pairs


class ModuleFunctions:
    """The functions of a file that are there now. Looking for them takes long, so it is done once for all mutants."""

    def __init__(self, file: str) -> None:
        objects = gc.get_objects()
        self._functions = [one for one in objects if isinstance(one, FunctionType) and one.__code__.co_filename == file]
        # What they answered without any mistake must not be remembered.
        self._caches = [one for one in objects if isinstance(one, _Cache) and one.__module__.startswith("coldstream")]

    def count(self, pairs: list[tuple[CodeType, CodeType]]) -> int:
        """Return how many functions have one of the codes that differ."""
        return sum(_is_same_place(function.__code__, own) for own, _ in pairs for function in self._functions)

    def patch(self, pairs: list[tuple[CodeType, CodeType]]) -> None:
        """Give all that have the one code the other, and have caches forget."""
        for one in self._caches:
            one.cache_clear()
        for own, other in pairs:
            for function in self._functions:
                if _is_same_place(function.__code__, own):
                    function.__code__ = other


def _pairs(own: CodeType, other: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the code objects that differ, those within others before these."""
    # The compiler leaves out what can never run: then an inner function has no other, and its outer one differs.
    mine, theirs = _inner(own), _inner(other)
    for place, one in mine.items():
        if place in theirs:
            yield from _pairs(one, theirs[place])
    plain = [const for const in own.co_consts if not isinstance(const, CodeType)]
    others = [const for const in other.co_consts if not isinstance(const, CodeType)]
    same = (own.co_code, own.co_names, repr(plain)) == (other.co_code, other.co_names, repr(others))
    # What has a changed function in it is changed, too: it makes the inner one.
    if not same or (_is_function(own) and mine != theirs) or mine.keys() != theirs.keys():
        yield own, other


def _inner(code: CodeType) -> dict[tuple[str, int, int], CodeType]:
    """Return the code objects in another one by their places; several in a line are counted."""
    found: dict[tuple[str, int, int], CodeType] = {}
    for const in code.co_consts:
        if isinstance(const, CodeType):
            number = sum(place[:2] == (const.co_qualname, const.co_firstlineno) for place in found)
            found[const.co_qualname, const.co_firstlineno, number] = const
    return found


def _is_function(code: CodeType) -> bool:
    # CO_OPTIMIZED: functions have it, the bodies of modules and classes have not.
    return bool(code.co_flags & 0x1)


def _is_same_place(one: CodeType, other: CodeType) -> bool:
    return (one.co_qualname, one.co_firstlineno) == (other.co_qualname, other.co_firstlineno)
