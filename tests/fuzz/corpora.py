"""Inputs that are kept: a line of base64 each, so that a difference can be read, and two branches merge.

corpus/NAME.txt         inputs that reach different code, which a fuzzer begins with: made by `prove`, by no hand
regressions/NAME.txt    inputs by which something was found; what that was stands after the input
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable
from pathlib import Path

from tests.fuzz.fuzz_target import FuzzTarget

HERE = Path(__file__).parent
CORPUS, REGRESSIONS = HERE / "corpus", HERE / "regressions"


def kept(directory: Path, name: str) -> list[bytes]:
    """Return the inputs of a target in a directory."""
    path = directory / f"{name}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [b64decode(line.partition(" ")[0], validate=True) for line in lines]


def inputs_of(target: FuzzTarget) -> list[bytes]:
    """Return all inputs of a target: seeds, corpus and regressions, each once."""
    found = (*target.seeds(), *kept(CORPUS, target.name), *kept(REGRESSIONS, target.name))
    return list(dict.fromkeys(found))


def keep(target: FuzzTarget, inputs: Collection[bytes], directory: Path = CORPUS) -> None:
    """Write the corpus of a target, without its seeds."""
    seeds = set(target.seeds())
    lines = sorted(b64encode(one).decode() for one in set(inputs) - seeds)
    directory.mkdir(exist_ok=True)
    (directory / f"{target.name}.txt").write_text("".join(f"{line}\n" for line in lines))


def words_of(inputs: Iterable[bytes]) -> list[bytes]:
    """Return the words in inputs, such as the names of fields, for a fuzzer's dictionary."""
    found: dict[bytes, None] = {}
    for one in inputs:
        word = bytearray()
        for byte in (*one, 0):
            if chr(byte).isalnum() and byte < 0x80 or byte in b"_-":  # noqa: RUF021  ASCII
                word.append(byte)
                continue
            if 3 <= len(word) <= 24 and not word.isdigit():
                found[bytes(word)] = None
            word.clear()
    return list(found)
