"""Random histories: chunks, retention, credits, stalls, and streams that are declared again."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.group_explorer import GroupExplorer
from tests.support.holes_explorer import HolesExplorer
from tests.support.single_active_explorer import SingleActiveExplorer
from tests.support.takeover_explorer import TakeoverExplorer

SEEDS = 200


async def played(seed: int, *, redeclares: bool) -> TakeoverExplorer:
    explorer = TakeoverExplorer(seed, redeclares=redeclares)
    await explorer.play(steps=150)
    return explorer


@pytest.mark.parametrize("block", range(4))
def test_a_client_gets_each_chunk_once_whatever_happens(block: int) -> None:
    taken_over = returned = 0
    for seed in range(block * SEEDS // 4, (block + 1) * SEEDS // 4):
        try:
            explorer = asyncio.run(played(seed, redeclares=False))
        except BaseException as err:
            err.add_note(f"seed {seed}")
            raise
        taken_over += explorer.rig.figures.takeovers_total
        returned += explorer.rig.figures.returns_total
    assert taken_over > 10
    assert returned > 10


@pytest.mark.parametrize("block", range(2))
def test_incarnations_never_mix(block: int) -> None:
    for seed in range(1000 + block * SEEDS // 2, 1000 + (block + 1) * SEEDS // 2):
        try:
            asyncio.run(played(seed, redeclares=True))
        except BaseException as err:
            err.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("block", range(2))
def test_a_single_active_consumer_gets_each_chunk_while_it_is_active(block: int) -> None:
    activations = taken_over = 0
    for seed in range(2000 + block * SEEDS // 2, 2000 + (block + 1) * SEEDS // 2):
        explorer = SingleActiveExplorer(seed)
        try:
            asyncio.run(explorer.play(steps=150))
        except BaseException as err:
            err.add_note(f"seed {seed}")
            raise
        activations += explorer.activations
        taken_over += explorer.rig.figures.takeovers_total
    assert activations > 2 * SEEDS // 2
    assert taken_over > 10


@pytest.mark.parametrize("block", range(2))
def test_a_group_of_single_active_consumers_has_one_that_is_served(block: int) -> None:
    activations = taken_over = 0
    for seed in range(3000 + block * SEEDS // 2, 3000 + (block + 1) * SEEDS // 2):
        explorer = GroupExplorer(seed)
        try:
            asyncio.run(explorer.play(steps=150))
        except BaseException as err:
            err.add_note(f"seed {seed}")
            raise
        activations += explorer.group.activations
        taken_over += sum(member.rig.figures.takeovers_total for member in explorer.members)
    assert activations > 2 * SEEDS // 2
    assert taken_over > 10


def test_a_client_that_skips_gaps_misses_nothing_else() -> None:
    gaps = 0
    for seed in range(4000, 4000 + SEEDS // 2):
        explorer = HolesExplorer(seed)
        try:
            asyncio.run(explorer.play(steps=150))
        except BaseException as err:
            err.add_note(f"seed {seed}")
            raise
        gaps += explorer.rig.figures.gaps_total["skip"]
    assert gaps > 10
