from __future__ import annotations

import logging
import resource

import pytest

from coldstream.gateway.process import descriptors
from coldstream.gateway.process.descriptors import BESIDE_CONNECTIONS, allow_descriptors

NEEDED = 2 * 5_000 + BESIDE_CONNECTIONS
UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("before", "after", "is_warned"),
    [
        ((1024, 1 << 20), (NEEDED, 1 << 20), False),
        ((1024, UNLIMITED), (NEEDED, UNLIMITED), False),
        ((1024, NEEDED), (NEEDED, NEEDED), False),
        ((1024, 4096), (4096, 4096), True),
        ((1024, 1024), None, True),
        ((1 << 20, 1 << 20), None, False),
        ((UNLIMITED, UNLIMITED), None, False),
    ],
)
def test_the_limit_is_raised_to_what_connections_need_as_far_as_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    before: tuple[int, int],
    after: tuple[int, int] | None,
    *,
    is_warned: bool,
) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: before)
    monkeypatch.setattr(descriptors.resource, "setrlimit", lambda _, limits: made.append(limits))
    allow_descriptors(5_000)
    assert made == ([] if after is None else [after])
    assert [record.levelno for record in caplog.records] == ([logging.WARNING] if is_warned else [])
