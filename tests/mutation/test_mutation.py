"""The tool that puts mistakes into code: which ones, where, and that it tells whether a test minds."""

from __future__ import annotations

import ast
import sys
from types import ModuleType

import pytest

from scripts import generate
from tests.mutation.mutants import mutants_of, mutated
from tests.mutation.patching import ModuleFunctions, changed_functions, compiled
from tests.mutation.prove import TESTS as PACKAGES
from tests.mutation.prove import modules_of
from tests.mutation.results import explained, tally
from tests.mutation.suite import Verdict
from tests.mutation.whole_module import is_library

SOURCE = '''
"""What it is."""
LIMIT: int = 3
__slots__ = ("a",)

def within(number: int, most: int = LIMIT) -> bool:
    """Tell."""
    if number < 0 or not most:
        raise ValueError(f"{number} of {1}", 5)
    return all(one <= most for one in range(number))
'''


def made(source: str = SOURCE) -> ModuleType:
    module = ModuleType("made")
    module.__file__ = "made.py"
    exec(compiled("made.py", source, None), vars(module))
    return module


def test_mistakes_are_where_a_test_should_mind_and_named_by_their_place():
    found = {(one.name, one.told.partition("  ->  ")[2]) for one in mutants_of("made", SOURCE)}
    assert ("made::constant:1", "4") in found
    assert ("made:within:compare:1", "number <= 0") in found
    assert ("made:within:join:1", "number < 0 and (not most)") in found
    assert ("made:within:join:2", "not most") in found
    assert ("made:within:negate:1", "most") in found
    assert ("made:within:condition:2", "if False:") in found
    assert ("made:within:statement:1", "pass") in found
    assert ("made:within:statement:2", "return None") in found
    assert ("made:within:compare:2", "one < most") in found
    assert not any("slots" in told or "What it is" in told for _, told in found)
    assert len({name for name, _ in found}) == len(found)


def test_each_mistake_is_one_change_and_can_be_compiled():
    own = ast.unparse(ast.parse(SOURCE))
    for mutant in mutants_of("made", SOURCE):
        other = ast.unparse(mutated(SOURCE, mutant))
        assert sum(one != two for one, two in zip(own.splitlines(), other.splitlines(), strict=True)) <= 2, mutant
        assert other != own


SMALL = "def within(number, most):\n    return all(one <= most for one in range(number))\n"


@pytest.mark.parametrize(("told", "answer"), [("one < most", False), ("return None", None)])
def test_a_function_that_is_there_gets_the_code_of_a_mutant(told, answer):
    module = made(SMALL)
    kept = module.within
    assert kept(4, 3)
    (mutant,) = (one for one in mutants_of("made", SMALL) if one.told.endswith(told))
    pairs = changed_functions(compiled("made.py", SMALL, None), compiled("made.py", SMALL, mutant))
    assert pairs
    functions = ModuleFunctions("made.py")
    assert functions.count(pairs)
    functions.patch(pairs)
    assert kept(4, 3) is answer


CACHED = "from functools import cache\n__name__ = 'coldstream.made'\n@cache\n" + SMALL


def test_what_a_function_answered_before_is_forgotten():
    module = made(CACHED)
    assert module.within(4, 3)
    (mutant,) = (one for one in mutants_of("made", CACHED) if one.told.endswith("one < most"))
    ModuleFunctions("made.py").patch(
        changed_functions(compiled("made.py", CACHED, None), compiled("made.py", CACHED, mutant))
    )
    assert not module.within(4, 3)


def test_what_is_done_while_a_module_is_imported_needs_another_import():
    mutant = next(one for one in mutants_of("made", SOURCE) if one.name == "made::constant:1")
    assert changed_functions(compiled("made.py", SOURCE, None), compiled("made.py", SOURCE, mutant)) is None


def test_the_share_is_of_what_is_not_explained():
    name = next(iter(explained()))
    verdicts = {"a": Verdict.KILLED, "b": Verdict.HANGS, "c": Verdict.SURVIVED, "d": Verdict.UNREACHED}
    figures = {"tried": 5, "killed": 2, "explained": 1, "unexplained": 2, "share killed": 0.5}
    assert tally({**verdicts, name: Verdict.SURVIVED}) == figures


def test_only_mutants_that_exist_are_explained():
    names = {
        mutant.name
        for package in PACKAGES
        for module, path in modules_of(package).items()
        for mutant in mutants_of(module, path.read_text())
    }
    assert set(explained()) <= names
    assert all(len(reason) > 10 for reason in explained().values())


def test_what_is_imported_before_a_mutant_is_nothing_of_ours():
    names = {name for name, module in sys.modules.items() if is_library(name, module)}
    assert {"json", "random"} <= names
    assert generate.__name__ == "scripts.generate", "it imports coldstream"
    assert not [name for name in names if name.partition(".")[0] in {"coldstream", "tests", "scripts", "functions"}]
