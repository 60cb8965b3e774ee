from __future__ import annotations

import os
from pathlib import Path

import pytest

from coldstream.gateway.process.cores import usable_cores


@pytest.mark.parametrize(("limit", "cores"), [("50000 100000", 1), ("100000 100000", 1), ("0 100000", 1)])
def test_a_containers_limit_counts_rounded_up(tmp_path: Path, limit: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(f"{limit}\n")
    assert usable_cores(tmp_path / "cpu.max") == cores


@pytest.mark.parametrize("limit", ["max 100000", "99999999 100000", "", "nonsense", "1 0"])
def test_without_a_limit_it_is_what_the_process_may_use(tmp_path: Path, limit: str) -> None:
    (tmp_path / "cpu.max").write_text(limit)
    assert usable_cores(tmp_path / "cpu.max") == len(os.sched_getaffinity(0)) == usable_cores(tmp_path / "none")
