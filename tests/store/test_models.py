from __future__ import annotations

import pytest
from botocore.loaders import JSONFileLoader

from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable


def test_the_clients_of_a_process_read_each_file_of_the_sdk_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    load = JSONFileLoader.load_file

    def loading(self: JSONFileLoader, file_path: str) -> object:
        if (found := load(self, file_path)) is not None:
            read.append(file_path)
        return found

    monkeypatch.setattr(JSONFileLoader, "load_file", loading)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    for number in range(2):
        S3Objects("bucket")
        DynamoTable(f"table-{number}")._connection()
    assert len(read) == len(set(read))
