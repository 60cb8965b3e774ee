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

from tests.support.server import ROOT

LAYER = ROOT / "layers/coldstream"
SERVICES = ("dynamodb", "s3")
WHOLE = Path(botocore.__file__).parent / "data"


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of data as the layer has it, of two services and what belongs to none."""
    data = tmp_path_factory.mktemp("botocore") / "data"
    data.mkdir()
    for path in WHOLE.iterdir():
        if path.is_file():
            shutil.copy(path, data)
    for name in (*SERVICES, "sns"):
        shutil.copytree(WHOLE / name, data / name)
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
    whole = loader(WHOLE).load_service_model(service, kind)
    found = loader(lean).load_service_model(service, kind)
    assert json.dumps(found) == json.dumps(without_words(whole))


def test_no_other_service_is_there(lean: Path) -> None:
    assert {path.name for path in lean.iterdir() if path.is_dir()} == set(SERVICES)
    assert not list(lean.rglob("*.gz"))


@pytest.mark.parametrize("region", ["eu-central-1", "cn-north-1", "us-gov-west-1"])
def test_requests_go_where_they_go_with_all_of_the_data(lean: Path, region: str, tmp_path: Path) -> None:
    package = tmp_path / "botocore"
    package.mkdir()
    for path in WHOLE.parent.iterdir():  # the SDK trusts data beside its own code alone
        (package / path.name).symlink_to(lean if path == WHOLE else path)
    found = [addresses(region, path) for path in (None, tmp_path)]
    assert found[0] == found[1]
    assert region in found[0]


def addresses(region: str, packages: Path | None) -> str:
    """Return where clients send requests, in a new process that looks for the SDK in `packages` first."""
    program = f"""
import botocore.session
session = botocore.session.get_session()
make = lambda service: session.create_client(service, {region!r}, aws_access_key_id="a", aws_secret_access_key="b")
print(make("dynamodb").meta.endpoint_url)
print(make("s3").generate_presigned_url("get_object", {{"Bucket": "archive", "Key": "a/b"}}).partition("?")[0])
"""
    environment = {} if packages is None else {"PYTHONPATH": str(packages)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout
