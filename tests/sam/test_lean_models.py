"""What the layer has of the SDK's data: the project's services alone, without words, and the same requests."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import botocore
import pytest
from botocore.loaders import Loader
from botocore.session import get_session

from tests.support.server import ROOT

LAYER = ROOT / "layers/coldstream"
SERVICES = ("dynamodb", "s3")


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of data as the layer has it, of two services and what belongs to none."""
    data = tmp_path_factory.mktemp("botocore") / "data"
    whole = Path(botocore.__file__).parent / "data"
    data.mkdir()
    for path in whole.iterdir():
        if path.is_file():
            shutil.copy(path, data)
    for name in (*SERVICES, "sns"):
        shutil.copytree(whole / name, data / name)
    subprocess.run([sys.executable, LAYER / "lean_models.py", data, *SERVICES], check=True)
    return data


def loader(data: Path) -> Loader:
    return Loader(extra_search_paths=[str(data)], include_default_search_paths=False)


def without_words(value: Any) -> Any:
    if isinstance(value, list):
        return [without_words(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {k: "" if k == "documentation" and isinstance(v, str) else without_words(v) for k, v in value.items()}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("kind", ["service-2", "endpoint-rule-set-1", "paginators-1", "waiters-2"])
def test_a_model_is_the_same_but_for_its_documentation(lean: Path, service: str, kind: str) -> None:
    whole = get_session().get_component("data_loader").load_service_model(service, kind)
    found = loader(lean).load_service_model(service, kind)
    assert json.dumps(found) == json.dumps(without_words(whole))


def test_no_other_service_is_there(lean: Path) -> None:
    assert {path.name for path in lean.iterdir() if path.is_dir()} == set(SERVICES)
    assert not list(lean.rglob("*.gz"))


@pytest.mark.parametrize("region", ["eu-central-1", "cn-north-1", "us-gov-west-1"])
def test_clients_find_their_endpoints(lean: Path, region: str) -> None:
    for service in SERVICES:
        urls = []
        for data in (None, lean):
            session = get_session()
            if data is not None:
                session.register_component("data_loader", loader(data))
            client = session.create_client(service, region, aws_access_key_id="a", aws_secret_access_key="b")
            urls.append(client.meta.endpoint_url)
        assert urls[0] == urls[1]
        assert region in urls[0]


def test_a_request_finds_its_endpoint_by_the_rules(lean: Path) -> None:
    urls = []
    for data in (None, lean):
        session = get_session()
        if data is not None:
            session.register_component("data_loader", loader(data))
        client = session.create_client("s3", "eu-central-1", aws_access_key_id="a", aws_secret_access_key="b")
        urls.append(client.generate_presigned_url("get_object", {"Bucket": "archive", "Key": "a/b"}).partition("?")[0])
    assert urls[0] == urls[1]
    assert urls[0].startswith("https://archive.s3.")
