"""How the tests are spread over processes, with `pytest -n`: by file, but for what shares something expensive.

A process that gets a group starts its broker, Spark or Docker once, and no other process does. The groups that take
longest go first: short files are left for the end, so that all processes end at about the same time.

Only the processes that run tests know which fixtures a test asks for. They leave the groups in a file that the process
which hands out the tests has named: pytest-xdist's own groups are lost on the way under this pytest.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.releases import HOST_RELEASE

GROUPS_FILE = "COLDSTREAM_TEST_GROUPS"

SHARED = {
    "spark": "spark",
    "spark_submit": "spark",
    "sam": "docker",
    "docker": "docker",
    "localstack": "localstack",
    "dynamodb_local": "localstack",
    "broker": "broker",
}
"""Groups by the fixture that a test asks for; of several the first one counts."""

FIRST = [
    "tests/chaos",
    "docker",
    "spark",
    "broker",
    "tests/package",
    "tests/store/test_manifest_table",
    "tests/consumer",
    "tests/resolve/test_osiris_lookups",
    "tests/agent/test_cluster",
    "tests/local",
]
"""Groups, and beginnings of paths, that take longest, in the order in which they start."""


def group_of(item: pytest.Item) -> str:
    """Name the group whose tests have to run in one process."""
    fixtures = getattr(item, "fixturenames", ())
    if "any_broker" in fixtures:
        release = item.callspec.params["broker_release"]  # type: ignore[attr-defined]  # a function's has one
        return "broker" if release == HOST_RELEASE else f"broker {release.version}"
    shared = (group for fixture, group in SHARED.items() if fixture in fixtures)
    return next(shared, item.nodeid.partition("::")[0])


def place_of(group: str) -> int:
    """Return where a group comes in the order."""
    return next((place for place, first in enumerate(FIRST) if group.startswith(first)), len(FIRST))


class GroupScheduling(LoadScopeScheduling):
    """Gives a process whole groups."""

    def _split_scope(self, nodeid: str) -> str:
        return self.groups[nodeid]

    def schedule(self) -> None:
        """Begin, or go on, as all processes have collected the tests; each then has written the same groups."""
        if self.collection is None:
            self.config.option.loadscopereorder = False  # else groups of many tests come first, and not the long ones
            self.groups: dict[str, str] = json.loads(Path(os.environ[GROUPS_FILE]).read_text())
        super().schedule()


def pytest_configure(config: pytest.Config) -> None:
    """Name the file, where this process hands out the tests."""
    if getattr(config.option, "numprocesses", None):
        os.environ[GROUPS_FILE] = tempfile.mkstemp(suffix=".groups.json")[1]
        config.add_cleanup(lambda: Path(os.environ.pop(GROUPS_FILE)).unlink())


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling:
    """Hand out the tests by group."""
    return GroupScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Write down the group of each test, and put the long groups first: every process comes to the same order."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    groups = {item: group_of(item) for item in items}
    items.sort(key=lambda item: place_of(groups[item]))
    file = Path(os.environ[GROUPS_FILE])
    written = file.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps({item.nodeid: group for item, group in groups.items()}))
    written.replace(file)  # at once: another process may be reading it
