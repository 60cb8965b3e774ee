"""Try a mutant of what is done while a module is imported, in a process of its own: it ends with 1 if a test fails.

    python -m tests.mutation.whole_module MUTANT TEST…

The module's source is another one before anything has imported it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import CodeType

import pytest

from tests.mutation.mutants import mutants_of, mutated


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads one module with a mistake in it."""

    mutant: str

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        (mutant,) = (one for one in mutants_of(fullname, source) if one.name == self.mutant)
        return compile(mutated(source, mutant), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds that module before anybody else does."""

    def __init__(self, mutant: str) -> None:
        self._mutant = mutant
        self._module = mutant.partition(":")[0]

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._module:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)  # type: ignore[arg-type]  # as it was given
        assert found is not None
        assert found.origin is not None
        loader = _Loader(name, found.origin)
        loader.mutant = self._mutant
        return importlib.util.spec_from_file_location(name, found.origin, loader=loader)


def main() -> None:
    """Run the tests."""
    mutant, *tests = sys.argv[1:]
    sys.meta_path.insert(0, _Finder(mutant))
    arguments = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not server and not slow", *tests]
    sys.exit(int(pytest.main(arguments) != 0))


if __name__ == "__main__":
    main()
