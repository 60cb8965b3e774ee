"""The archive that the environment names."""

from __future__ import annotations

from typing import Any, cast

import pytest

from coldstream.streams import DirectArchive, StreamOptions


def test_a_connection_to_the_table_and_to_s3_is_kept_for_each_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("DEFAULT_REGION", "eu-west-1"), ("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "x")):
        monkeypatch.setenv(f"AWS_{name}", value)
    archive = DirectArchive.from_environment({"COLDSTREAM_BUCKET": "bucket", "COLDSTREAM_TABLE": "table"})
    table, objects = cast(Any, archive.table), cast(Any, archive.objects)
    options = StreamOptions()
    for client in (table._item._get_connection().connection.client, objects._client):
        assert client.meta.config.max_pool_connections >= options.threads + options.wal.in_flight + 2
