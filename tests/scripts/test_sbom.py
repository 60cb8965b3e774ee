"""A bill of materials names each package that is pinned for a build, with version and hashes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import coldstream
from scripts.sbom import BUILDS, ROOT, find_tool, main, pinned
from tests.support.fixtures import do_without


@pytest.fixture(scope="module", params=BUILDS)
def bill(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    if find_tool() is None:
        do_without("cyclonedx-py", "make tools")
    target = tmp_path_factory.mktemp("sbom") / "of" / "build.json"
    assert main([request.param, "--to", str(target)]) == 0
    return request.param, json.loads(target.read_text())


def test_each_package_that_is_pinned_is_named_with_its_version_and_its_hashes(bill: tuple[str, Any]) -> None:
    build, document = bill
    named = {
        (component["name"], component["version"]): {
            found["content"] for reference in component["externalReferences"] for found in reference["hashes"]
        }
        for component in document["components"]
    }
    wanted = {}
    for line in pinned(BUILDS[build]):
        requirement = Requirement(line.partition("--hash")[0])
        version = str(requirement.specifier).removeprefix("==")
        wanted[requirement.name, version] = {word.rpartition(":")[2] for word in line.split() if "--hash" in word}
    assert named == wanted
    assert all(named.values())


def test_what_only_another_system_needs_is_not_named(bill: tuple[str, Any]) -> None:
    assert not {"colorama", "pywin32"} & {component["name"] for component in bill[1]["components"]}


def test_it_says_what_it_is_of(bill: tuple[str, Any]) -> None:
    component = bill[1]["metadata"]["component"]
    assert (component["name"], component["version"]) == ("coldstream", coldstream.__version__)
    assert (bill[1]["bomFormat"], bill[1]["specVersion"]) == ("CycloneDX", "1.6")


def test_it_is_the_same_each_time(bill: tuple[str, Any], tmp_path: Path) -> None:
    if bill[0] == "layer":  # one is enough: each takes seconds
        main([bill[0], "--to", str(tmp_path / "again.json")])
        assert json.loads((tmp_path / "again.json").read_text()) == bill[1]
    assert not {"serialNumber", "timestamp"} & {*bill[1], *bill[1]["metadata"]}


def test_every_build_writes_its_own() -> None:
    recipes = (ROOT / "Makefile").read_text() + (ROOT / "scripts/spark_package.py").read_text()
    assert "sbom.py layer --to .aws-sam/build/Layer/sbom.cdx.json" in recipes
    assert "sbom.py agent --to dist/agent.cdx.json" in recipes
    assert 'write_sbom("spark", options.to / "sbom.cdx.json")' in recipes


def test_a_missing_tool_is_named_with_what_brings_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scripts.sbom.TOOL", Path("/nowhere/bin/cyclonedx-py"))
    with pytest.raises(SystemExit) as ended:
        main(["layer"])
    assert ended.value.code == 1
    assert "make tools" in capsys.readouterr().err
