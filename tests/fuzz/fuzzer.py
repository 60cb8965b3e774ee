"""Fuzz targets with atheris, in an environment that has it: python -m tests.fuzz.fuzzer PLAN

A plan is JSON: a list of `{"target": NAME, "log": FILE, "arguments": [flags and directories of libFuzzer's]}`. Each
step has a process of its own, one after the other: libFuzzer ends its process, and so does whatever a target raises;
the input lies at libFuzzer's `-artifact_prefix` then. They are forked once all code is instrumented, which takes some
seconds.
Instrumented is the code of coldstream, and nothing else: what lies behind it has its own fuzzers.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import atheris

if TYPE_CHECKING:
    from tests.fuzz.fuzz_target import FuzzTarget


def main() -> None:
    """Run a plan. Ends with 1 if any of it failed, and says which."""
    with atheris.instrument_imports(include=["coldstream", "tests.fuzz.planted"]):
        from tests.fuzz.catalogue import TARGETS  # noqa: PLC0415  instrumented as it is imported
        from tests.fuzz.planted import PLANTED  # noqa: PLC0415  the same
    targets = {**TARGETS, PLANTED.name: PLANTED}
    failed = []
    for step in json.loads(Path(sys.argv[1]).read_text()):
        child = os.fork()
        if not child:
            _fuzz(targets[step["target"]], step)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            failed.append(step["target"])
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _fuzz(target: FuzzTarget, step: dict[str, Any]) -> NoReturn:
    log = os.open(step["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)

    def run(data: bytes) -> None:
        target.takes(data)

    atheris.Setup([sys.argv[0], f"-max_len={target.max_bytes}", *step["arguments"]], run)
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends its process")


main()
