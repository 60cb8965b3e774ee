"""Whatever is installed is pinned by version and hash, completely, and what runs is of the versions that are tested."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.server import ROOT

LAYER = ROOT / "layers/coldstream/python/requirements.txt"
FILES = [*sorted(ROOT.glob("requirements*.txt")), LAYER]
OURS = [ROOT / f"requirements-{name}.txt" for name in ("agent", "build", "gateway", "spark")] + [LAYER]
"""Files of what coldstream itself needs."""

OLDER = {LAYER: {"cramjam"}}
"""Of another version than the tests run with: scripts/pin says why."""

HAS_INTERNALS_THAT_WE_USE = {"moto", "pynamodb", "rstream"}
INSTALLERS = (
    "scripts/make-venv",
    "scripts/spark_package.py",
    "layers/coldstream/Makefile",
    "deploy/Containerfile",
    "deploy/gateway/Containerfile",
)


def pins(path: Path) -> dict[str, tuple[str, list[str]]]:
    """Return the requirement and the hashes of each package, by its name."""
    found = {}
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if not line.startswith("#"):
            requirement, *hashes = re.split(r"\s+--hash=", line)
            found[requirement] = (requirement, hashes)
    return {canonicalize_name(Requirement(text).name): pin for text, pin in found.items()}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_package_has_one_version_and_its_hashes(path: Path) -> None:
    found = pins(path)
    assert found
    for requirement, hashes in found.values():
        assert re.fullmatch(r"==[^,*]+", str(Requirement(requirement).specifier)), requirement
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_file_is_written_by_one_command_and_names_no_index(path: Path) -> None:
    script = (ROOT / "scripts/pin").read_text()
    assert re.search(rf"^pin {re.escape(name_of(path))} ", script, re.MULTILINE)
    assert "://" not in path.read_text()


@pytest.mark.parametrize("path", OURS, ids=name_of)
def test_what_runs_is_of_the_versions_that_the_tests_run_with(path: Path) -> None:
    tested = pins(ROOT / "requirements-dev.txt")
    for name, (requirement, hashes) in pins(path).items():
        if name in OLDER.get(path, set()):
            assert Requirement(requirement).specifier != Requirement(tested[name][0]).specifier
            continue
        assert (Requirement(requirement).specifier, set(hashes)) == (
            Requirement(tested[name][0]).specifier,
            set(tested[name][1]),
        )


@pytest.mark.parametrize("path", OURS, ids=name_of)
def test_whatever_a_package_needs_is_pinned_beside_it(path: Path) -> None:
    found = pins(path)
    for name, (pin, _) in found.items():
        marker = Requirement(pin).marker
        if marker is None or marker.evaluate():
            is_tested = name not in OLDER.get(path, set())
            assert not is_tested or metadata.version(name) in Requirement(pin).specifier, "older pins: make setup"
            needed = map(Requirement, metadata.requires(name) or [])
            wanted = {canonicalize_name(each.name) for each in needed if each.marker is None or each.marker.evaluate()}
            assert wanted <= found.keys(), name


def extras(*names: str) -> set[str]:
    """Return what the project and extras of it need, those of the extras that they name included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = set(project["dependencies"])
    for name in names:
        for requirement in map(Requirement, project["optional-dependencies"][name]):
            wanted |= extras(*requirement.extras) if requirement.name == project["name"] else {str(requirement)}
    return wanted


@pytest.mark.parametrize(
    ("path", "extra"),
    [(OURS[0], ["agent"]), (OURS[2], ["gateway"]), (OURS[3], ["replay"]), (LAYER, [])],
    ids=lambda value: str(value)[-24:],
)
def test_a_file_has_what_the_project_asks_for(path: Path, extra: list[str]) -> None:
    wanted = {canonicalize_name(Requirement(each).name) for each in extras(*extra)}
    assert wanted <= pins(path).keys()


def test_a_library_whose_internals_are_used_is_not_taken_in_its_next_release() -> None:
    wanted = [Requirement(each) for each in extras("agent", "local", "spark")]
    bounded = {each.name for each in wanted if any(bound.operator == "<" for bound in each.specifier)}
    assert bounded >= HAS_INTERNALS_THAT_WE_USE


@pytest.mark.parametrize("name", INSTALLERS)
def test_whatever_installs_pins_holds_them_against_their_hashes(name: str) -> None:
    assert "--require-hashes" in (ROOT / name).read_text()


def test_an_environment_is_not_made_of_what_has_another_hash(tmp_path: Path) -> None:
    wheel, requirements = tmp_path / "thing-1-py3-none-any.whl", tmp_path / "requirements.txt"
    wheel.write_bytes(b"what somebody put in the place of the wheel")
    requirements.write_text(f"thing @ {wheel.as_uri()} --hash=sha256:{'0' * 64}\n")
    command = [ROOT / "scripts/make-venv", sys.executable, tmp_path / "venv", requirements]
    alone = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_NO_INDEX": "1"}
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
