"""The functions' settings."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.format.seekable import DEFAULT_LEVEL
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.entry import Encoding
from coldstream.store.settings import Settings
from coldstream.units import MIB

LEAST = {"COLDSTREAM_BUCKET": "archive", "COLDSTREAM_TABLE": "manifest"}


def test_bucket_and_table_are_enough() -> None:
    assert Settings.from_environment(LEAST) == Settings(
        "archive", "manifest", "", 64 * MIB, encoding=Encoding.IDENTITY, spool_dir=None, url_expiry_s=3600
    )


def test_a_level_counts_only_if_fragments_are_compressed() -> None:
    level = {"COLDSTREAM_COMPRESSION_LEVEL": "9"}
    assert Settings.from_environment(LEAST | level).zstd_level is None
    assert Settings.from_environment(LEAST | level | {"COLDSTREAM_ENCODING": "identity"}).zstd_level is None
    compressed = LEAST | {"COLDSTREAM_ENCODING": "zstd-seekable"}
    assert Settings.from_environment(compressed | level).zstd_level == 9
    assert Settings.from_environment(compressed).zstd_level == DEFAULT_LEVEL


def test_everything_can_be_set() -> None:
    environment = LEAST | {
        "COLDSTREAM_PREFIX": "a/b/",
        "COLDSTREAM_FRAGMENT_BYTES": "65536",
        "COLDSTREAM_ENCODING": "zstd-seekable",
        "COLDSTREAM_COMPRESSION_LEVEL": "9",
        "COLDSTREAM_SPOOL_DIR": "/spool",
        "COLDSTREAM_URL_EXPIRY_S": "60",
        "COLDSTREAM_TOKEN_PERMISSIONS": "false",
        "COLDSTREAM_IAM_PERMISSIONS": "true",
        "COLDSTREAM_CLUSTER": "eu",
        "COLDSTREAM_SCOPE_CLAIM": "scp",
    }
    expected = Settings(
        "archive",
        "manifest",
        "a/b/",
        65536,
        encoding=Encoding.ZSTD_SEEKABLE,
        compression_level=9,
        spool_dir="/spool",
        url_expiry_s=60,
        cluster=Cluster("eu"),
        token_permissions=False,
        iam_permissions=True,
        scope_claim="scp",
    )
    assert Settings.from_environment(environment) == expected


def test_a_variable_that_is_empty_counts_as_absent() -> None:
    names = {"COLDSTREAM_PREFIX", "COLDSTREAM_FRAGMENT_BYTES", "COLDSTREAM_SPOOL_DIR", "COLDSTREAM_URL_EXPIRY_S"}
    names |= {"COLDSTREAM_ENCODING", "COLDSTREAM_COMPRESSION_LEVEL"}
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
        ("COLDSTREAM_ENCODING", "plain"),
        ("COLDSTREAM_ENCODING", "zstd"),
        ("COLDSTREAM_COMPRESSION_LEVEL", "0"),
        ("COLDSTREAM_COMPRESSION_LEVEL", "20"),
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
