from __future__ import annotations

import pytest

from tests.support.scrubbing import damages, scrub, small_archive


@pytest.mark.parametrize("deep", [False, True])
def test_a_healthy_archive_has_no_damage(*, deep: bool) -> None:
    report = scrub(small_archive(), deep=deep)
    assert damages(report) == []
    assert report.is_complete
    assert (report.position.fragments, report.position.unread, report.position.unsettled) == (5, 0, 0)
