from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue

import pytest

import coldstream
from coldstream.errors import UnavailableError
from coldstream.local.child_process import ChildProcess, Message

PREFIX = "from coldstream.local.child_process import ParentProcess\nparent = ParentProcess()\n"
ECHO = """
print("a handler's own output")
parent.send({"ready": parent.request["number"]})
parent.send({"more": parent.request["number"] + 1})
parent.gone.wait()
"""
PACKAGE = Path(coldstream.__path__[0]).parent


def environment(directory: Path, code: str) -> dict[str, str]:
    """Write the module `child`, and return the environment that finds it."""
    (directory / "child.py").write_text(PREFIX + code)
    return {"PYTHONPATH": os.pathsep.join([str(directory), str(PACKAGE)])}


def test_the_first_answer_says_that_it_is_ready_and_the_others_are_handed_on(tmp_path: Path) -> None:
    answers: SimpleQueue[Message] = SimpleQueue()
    process = ChildProcess(
        "child", environment=environment(tmp_path, ECHO), request={"number": 1}, on_message=answers.put
    )
    assert process.ready() == {"ready": 1}
    assert answers.get(timeout=10) == {"more": 2}
    process.stop()
    assert not process.is_alive()


def test_what_it_prints_goes_to_the_log_and_not_among_the_answers(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as log:
        process = ChildProcess("child", environment=environment(tmp_path, ECHO), request={"number": 1}, log=log)
        process.ready()
        process.stop()
        log.seek(0)
        assert log.read() == "a handler's own output\n"


def test_stopping_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    process = ChildProcess("child", environment=environment(tmp_path, ECHO), request={"number": 1})
    process.ready()
    process.stop()
    assert threading.active_count() == before


def test_one_that_ends_before_it_is_ready_is_reported_with_its_status(tmp_path: Path) -> None:
    process = ChildProcess("child", environment=environment(tmp_path, "raise SystemExit(3)"), request={})
    with pytest.raises(UnavailableError, match="ended before it was ready, with status 3"):
        process.ready()
    process.stop()


def test_an_error_for_an_answer_is_why_it_did_not_start(tmp_path: Path) -> None:
    code = 'parent.send({"error": "ImportError: no such module"})'
    process = ChildProcess("child", environment=environment(tmp_path, code), request={})
    with pytest.raises(UnavailableError, match="did not start: ImportError: no such module"):
        process.ready()
    process.stop()


def test_one_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.local.child_process.GRACE_S", 0.2)
    code = "parent.send({})\nimport time\ntime.sleep(600)"
    process = ChildProcess("child", environment=environment(tmp_path, code), request={})
    process.ready()
    started = time.monotonic()
    process.stop()
    assert not process.is_alive()
    assert time.monotonic() - started < 10


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = f"""
from coldstream.local.child_process import ChildProcess
process = ChildProcess("child", environment={environment(tmp_path, ECHO)!r}, request={{"number": 1}})
process.ready()
print(process._process.pid, flush=True)
process._process.wait()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(PACKAGE)}
    )
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 10
    while is_running(child):
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.05)


def is_running(process_id: int) -> bool:
    """Tell whether a process runs; one that ended and waits for init to notice does not."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
