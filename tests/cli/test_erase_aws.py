"""`coldstream erase` and `coldstream sweep` on an archive of the emulated AWS."""

from __future__ import annotations

import pytest

from coldstream.store.objects import S3Objects
from tests.cli.conftest import Cli
from tests.support.small_fragments import SmallFragments


@pytest.fixture(autouse=True)
def quiet_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the signals of this process as they are."""
    monkeypatch.setattr("signal.signal", lambda *_: None)


def test_messages_of_an_archive_on_aws_are_erased_and_the_old_objects_swept(
    archived: SmallFragments, s3_objects: S3Objects, cli: Cli
) -> None:
    before = archived.log()
    (foretold,) = cli("erase", "orders", "--offsets", "0:5", "--dry-run", "-o", "json").json
    (done,) = cli("erase", "orders", "--offsets", "0:5", "--grace", "0", "--yes", "-o", "json").json
    assert (foretold["messages"], done["messages"], done["is_done"]) == (5, 5, True)
    log = archived.log()
    assert [entry.erased for entry in log] == [True] + [False] * (len(before) - 1)
    assert cli("sweep", "orders", "--yes").code == 0
    assert s3_objects.info(before[0].key) is None
    assert s3_objects.info(log[0].key) is not None
