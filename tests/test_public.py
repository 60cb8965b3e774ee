"""The public names: what `from coldstream import …` gives, to programs and to type checkers."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import coldstream

PUBLIC = [
    "AccessDeniedError",
    "AsyncReader",
    "AtOffset",
    "AtTimestamp",
    "BlockingConsumer",
    "BrokerAddress",
    "Chunk",
    "ClosedError",
    "ColdstreamError",
    "Consumer",
    "ConsumerGroup",
    "CorruptionError",
    "FIRST",
    "Gap",
    "GapError",
    "IncarnationError",
    "InvalidInputError",
    "LAST",
    "Message",
    "MessageDelivery",
    "NEXT",
    "NotOwnerError",
    "Offset",
    "Reader",
    "ResolverClient",
    "ShardPosition",
    "ShardedReader",
    "StreamNotFoundError",
    "TimestampMs",
    "UnavailableError",
]
NEEDS_AN_EXTRA = {"BlockingConsumer", "Consumer"}


def in_a_new_process(code: str) -> None:
    paths = f"{Path(coldstream.__path__[0]).parent}"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": paths})


def imports_for_type_checkers() -> dict[str, str]:
    """Map names to the modules that the `if TYPE_CHECKING` block imports them from."""
    tree = ast.parse(Path(coldstream.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def test_the_public_names_are_these() -> None:
    assert sorted(coldstream.__all__) == sorted(PUBLIC)
    assert set(PUBLIC) <= set(dir(coldstream))


@pytest.mark.parametrize("name", PUBLIC)
def test_a_name_is_the_same_to_programs_and_to_type_checkers(name: str) -> None:
    home = imports_for_type_checkers()[name]
    assert getattr(coldstream, name) is getattr(import_module(home), name)


def test_type_checkers_see_no_more_than_programs() -> None:
    assert sorted(imports_for_type_checkers()) == sorted(PUBLIC)


def test_importing_coldstream_imports_nothing_of_it() -> None:
    in_a_new_process(
        "import coldstream, sys; loaded = [name for name in sys.modules if name.startswith('coldstream.')];"
        "assert not loaded, loaded"
    )


def test_what_needs_no_extra_is_imported_without_one() -> None:
    names = ", ".join(sorted(set(PUBLIC) - NEEDS_AN_EXTRA))
    in_a_new_process(f"import sys; sys.modules['rstream'] = None\nfrom coldstream import {names}")
