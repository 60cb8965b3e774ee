"""The functions' settings."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.manifest.cluster import Cluster
from coldstream.store.settings import Settings
from coldstream.units import MIB

LEAST = {"COLDSTREAM_BUCKET": "archive", "COLDSTREAM_TABLE": "manifest"}


def test_bucket_and_table_are_enough() -> None:
    assert Settings.from_environment(LEAST) == Settings("archive", "manifest", "", 64 * MIB, None, 3600)


def test_everything_can_be_set() -> None:
    environment = LEAST | {
        "COLDSTREAM_PREFIX": "a/b/",
        "COLDSTREAM_FRAGMENT_BYTES": "65536",
        "COLDSTREAM_SPOOL_DIR": "/spool",
        "COLDSTREAM_URL_EXPIRY_S": "60",
        "COLDSTREAM_TOKEN_PERMISSIONS": "false",
        "COLDSTREAM_IAM_PERMISSIONS": "true",
        "COLDSTREAM_CLUSTER": "eu",
        "COLDSTREAM_SCOPE_CLAIM": "scp",
    }
    expected = Settings("archive", "manifest", "a/b/", 65536, "/spool", 60, Cluster("eu"), False, True, "scp")
    assert Settings.from_environment(environment) == expected


def test_a_variable_that_is_empty_counts_as_absent() -> None:
    names = {"COLDSTREAM_PREFIX", "COLDSTREAM_FRAGMENT_BYTES", "COLDSTREAM_SPOOL_DIR", "COLDSTREAM_URL_EXPIRY_S"}
    names |= {"COLDSTREAM_TOKEN_PERMISSIONS", "COLDSTREAM_IAM_PERMISSIONS", "COLDSTREAM_SCOPE_CLAIM"}
    assert Settings.from_environment(LEAST | dict.fromkeys(names, "")) == Settings.from_environment(LEAST)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COLDSTREAM_BUCKET", ""),
        ("COLDSTREAM_TABLE", ""),
        ("COLDSTREAM_PREFIX", "no-slash"),
        ("COLDSTREAM_PREFIX", "/"),
        ("COLDSTREAM_PREFIX", "/a/"),
        ("COLDSTREAM_FRAGMENT_BYTES", "0"),
        ("COLDSTREAM_FRAGMENT_BYTES", "-1"),
        ("COLDSTREAM_FRAGMENT_BYTES", "64 MiB"),
        ("COLDSTREAM_FRAGMENT_BYTES", "1_000_000"),
        ("COLDSTREAM_FRAGMENT_BYTES", str(1 << 31)),
        ("COLDSTREAM_URL_EXPIRY_S", "0"),
        ("COLDSTREAM_URL_EXPIRY_S", "604801"),
        ("COLDSTREAM_TOKEN_PERMISSIONS", "yes"),
        ("COLDSTREAM_IAM_PERMISSIONS", "True"),
    ],
)
def test_what_means_nothing_is_refused_by_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(InvalidSettingError) as raised:
        Settings.from_environment(LEAST | {name: value})
    assert raised.value.field == name
