"""The script that installs newer brokers leaves nothing half, and says what it could not have."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.releases import REPOSITORY

NOWHERE = "http://127.0.0.1:9/debian"


def install(directory, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [REPOSITORY / "scripts/install-newer-brokers"],
        env=os.environ | {"COLDSTREAM_BROKERS": str(directory), "COLDSTREAM_DEBIAN_MIRROR": NOWHERE} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_without_root_it_says_what_will_be_skipped_and_goes_on(tmp_path):
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    done = install(tmp_path / "brokers", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 0
    for what in ("RabbitMQ 4.0 (Debian trixie)", "RabbitMQ 4.3 (Debian sid)", "only root", "is skipped"):
        assert what in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can install")
def test_a_mirror_that_does_not_answer_leaves_nothing_half(tmp_path):
    (tmp_path / ".making.killed" / "sid").mkdir(parents=True)
    done = install(tmp_path)
    assert done.returncode == 0
    assert "debootstrap" in done.stderr
    assert "RabbitMQ 4.3 (Debian sid)" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] in ([".lock"], [])


def test_what_is_there_is_left_alone(tmp_path):
    for suite in ("trixie", "sid"):
        wrapper = tmp_path / suite / "usr/lib/rabbitmq/bin/rabbitmq-server"
        wrapper.parent.mkdir(parents=True)
        wrapper.write_text("#!/bin/sh\n")
        wrapper.chmod(0o755)
    done = install(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
