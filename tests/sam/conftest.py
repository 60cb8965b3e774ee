"""One Docker engine, one emulated AWS and one build for all tests here; containers of functions are removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from coldstream.errors import UnavailableError
from tests.support.docker import DockerEngine, find_docker
from tests.support.fixtures import do_without
from tests.support.sam import EmulatedAws, SamLocal, find_sam


@pytest.fixture(scope="session")
def sam_cli() -> None:
    if find_sam() is None:
        do_without("SAM CLI", "make sam")


@pytest.fixture(scope="session")
def docker(sam_cli: None) -> Iterator[DockerEngine]:
    if not find_docker():
        do_without("Docker", "make docker")
    with ExitStack() as stack:
        try:
            running = stack.enter_context(DockerEngine())
        except UnavailableError as err:
            do_without("a Docker engine with the functions' base image", str(err))
        yield running


@pytest.fixture(scope="session")
def emulated(docker: DockerEngine) -> Iterator[EmulatedAws]:
    with EmulatedAws(docker.gateway) as running:
        yield running


@pytest.fixture(scope="session")
def sam(docker: DockerEngine, emulated: EmulatedAws, tmp_path_factory: pytest.TempPathFactory) -> SamLocal:
    built = SamLocal(tmp_path_factory.mktemp("sam") / "build", docker, emulated.environment)
    built.build()
    return built
