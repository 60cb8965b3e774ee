from __future__ import annotations

import pytest

from coldstream.store.grace import LONGEST_GRACE_MS, grace_ms
from coldstream.store.settings import MAX_URL_EXPIRY_S

HOUR_MS = 3600 * 1000


@pytest.mark.parametrize("expiry_s", [1, 3600, MAX_URL_EXPIRY_S])
def test_objects_stay_for_an_hour_longer_than_any_url(expiry_s: int) -> None:
    assert grace_ms(expiry_s) == expiry_s * 1000 + HOUR_MS


def test_grace_that_knows_no_settings_is_that_of_the_longest_urls() -> None:
    assert LONGEST_GRACE_MS == 7 * 24 * HOUR_MS + HOUR_MS
