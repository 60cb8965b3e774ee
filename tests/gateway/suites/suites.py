"""The clients' own test suites, as `scripts/gateway-clients/build` has built them, and how to read what they print."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from tests.gateway.clients.programs import BUILT

CERTIFICATES = BUILT / "rust" / "suite" / ".ci" / "certs"
_LIBTEST = re.compile(r"^test (\S+) \.\.\. (ok|FAILED|ignored)", re.MULTILINE)


class Suite(ABC):
    """Programs that are run one after the other in a directory."""

    certificates = CERTIFICATES
    timeout_s = 420.0

    @property
    @abstractmethod
    def directory(self) -> Path:
        """Where the programs run."""

    @property
    @abstractmethod
    def programs(self) -> list[Path]:
        """The programs, or none where they were not built."""

    @abstractmethod
    def arguments(self, directory: Path) -> list[str]:
        """Return a program's arguments; it may write to a directory."""

    @abstractmethod
    def outcomes(self, program: Path, directory: Path, output: str) -> Mapping[str, str]:
        """Return how each test of a program ended: `ok`, or something else."""


class RustSuite(Suite):
    """The tests of the crate rabbitmq-stream-client, by Rust's own harness."""

    @property
    def directory(self) -> Path:
        return BUILT / "rust" / "suite"

    @property
    def programs(self) -> list[Path]:
        return sorted(BUILT.glob("rust/*_test"))

    def arguments(self, directory: Path) -> list[str]:
        return ["--test-threads=4"]

    def outcomes(self, program: Path, directory: Path, output: str) -> Mapping[str, str]:
        return {f"{program.name}::{name}": outcome for name, outcome in _LIBTEST.findall(output)}


class GoSuite(Suite):
    """The tests of the module rabbitmq-stream-go-client, by Ginkgo."""

    @property
    def directory(self) -> Path:
        return BUILT / "go"

    @property
    def programs(self) -> list[Path]:
        return [program for program in [BUILT / "go" / "suite"] if program.exists()]

    def arguments(self, directory: Path) -> list[str]:
        return [f"-ginkgo.json-report={directory / 'report.json'}", "-ginkgo.seed=1"]

    def outcomes(self, program: Path, directory: Path, output: str) -> Mapping[str, str]:
        (report,) = json.loads((directory / "report.json").read_text())
        specs = [spec for spec in report["SpecReports"] if spec["LeafNodeType"] == "It"]
        words = {"passed": "ok"}
        return {
            " ".join([*spec["ContainerHierarchyTexts"], spec["LeafNodeText"]]): words.get(spec["State"], spec["State"])
            for spec in specs
        }


class JavaScriptSuite(Suite):
    """The tests of the package rabbitmq-stream-js-client, by Mocha."""

    @property
    def directory(self) -> Path:
        return BUILT / "javascript" / "node_modules" / "rabbitmq-stream-js-client"

    @property
    def programs(self) -> list[Path]:
        return [program for program in [BUILT / "javascript" / "node_modules" / ".bin" / "mocha"] if program.exists()]

    def arguments(self, directory: Path) -> list[str]:
        return ["--reporter=json", f"--reporter-option=output={directory / 'report.json'}", "test"]

    def outcomes(self, program: Path, directory: Path, output: str) -> Mapping[str, str]:
        report = json.loads((directory / "report.json").read_text())
        words = {"passes": "ok", "failures": "failed", "pending": "skipped"}
        # What a test's hooks do is told as tests of their own, which are there only if they fail.
        return {
            test["fullTitle"]: word
            for part, word in words.items()
            for test in report[part]
            if '" hook for "' not in test["fullTitle"]
        }


SUITES: Mapping[str, Suite] = {"rust": RustSuite(), "go": GoSuite(), "javascript": JavaScriptSuite()}
