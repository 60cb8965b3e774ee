"""Which keys are told of, and which a broker has."""

from __future__ import annotations

import pytest

from coldstream.gateway.frames.keys import VERSIONS, Key
from coldstream.gateway.proxy.versions import BrokerAbilities, known_to_both


def test_a_key_that_the_gateway_does_not_know_is_not_told_of() -> None:
    assert known_to_both(((2, 1, 2), (99, 1, 1), (8, 1, 2))) == ((2, 1, 2), (8, 1, 2))


def test_versions_that_the_gateway_does_not_know_are_not_told_of() -> None:
    # Byte credits: Subscribe and Credit of version 2.
    assert known_to_both(((7, 1, 2), (9, 1, 2), (8, 1, 3))) == ((7, 1, 1), (9, 1, 1), (8, 1, 2))


def test_a_key_without_a_common_version_is_not_told_of() -> None:
    assert known_to_both(((7, 2, 3),)) == ()


@pytest.mark.parametrize(
    ("release", "key", "version", "has"),
    [
        ("3.10.8", Key.SUBSCRIBE, 1, True),
        ("3.10.8", Key.STREAM_STATS, 1, False),
        ("3.11.0", Key.STREAM_STATS, 1, True),
        ("3.11.0", Key.DELIVER, 2, True),
        ("3.10.8", Key.DELIVER, 2, False),
        ("4.0.5", Key.RESOLVE_OFFSET_SPEC, 1, False),
        ("4.3.6", Key.RESOLVE_OFFSET_SPEC, 1, True),
        ("4.3.6", Key.SUBSCRIBE, 2, False),
        ("4.3.6", Key.DELIVER, 3, False),
        ("", Key.STREAM_STATS, 1, False),
    ],
)
def test_without_being_told_the_release_decides(release: str, key: Key, version: int, has: object) -> None:
    abilities = BrokerAbilities()
    abilities.take_version(release)
    assert abilities.has(key, version) is has


def test_what_the_broker_tells_counts_more_than_its_release() -> None:
    abilities = BrokerAbilities()
    abilities.take_version("3.10.8")
    abilities.take_commands(((int(Key.STREAM_STATS), 1, 1),))
    assert abilities.has(Key.STREAM_STATS)
    assert not abilities.has(Key.STREAM_STATS, 2)
    assert not abilities.has(Key.SUBSCRIBE)


def test_what_brokers_ask_themselves_they_do_not_tell_of() -> None:
    abilities = BrokerAbilities()
    assert not abilities.has(Key.CONSUMER_UPDATE)
    abilities.take_commands(((int(Key.STREAM_STATS), 1, 1),))
    assert abilities.has(Key.CONSUMER_UPDATE)


def test_the_gateway_knows_every_key_in_its_first_version() -> None:
    assert set(VERSIONS) == set(Key)
    assert {least for least, _ in VERSIONS.values()} == {1}


@pytest.mark.parametrize(
    ("release", "is_known"),
    [("3.10.8", True), ("4.0.5", True), ("4.3.6", True), ("4.4.0", False), ("5.0.0", False), ("", False), ("x", False)],
)
def test_what_a_later_broker_knows_is_not_known(release: str, is_known: object) -> None:
    abilities = BrokerAbilities()
    abilities.take_version(release)
    assert abilities.is_known is is_known
