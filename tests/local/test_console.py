"""The console on the emulated stack: off unless its parameter says so, and then at an address of its own."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from coldstream.errors import UnavailableError
from coldstream.local.stack import EmulatedStack


def test_the_console_is_served_beside_the_resolver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # As a developer may have it set: moto warns of a resource that it does not know, such as the console's secret.
    monkeypatch.setenv("PYTHONWARNINGS", "error::UserWarning")
    log = tmp_path / "log"
    try:
        with log.open("w") as to, EmulatedStack(parameters={"Console": "on"}, log=to) as stack:
            check_console(stack)
        assert "No Moto CloudFormation support" not in log.read_text()
    except UnavailableError as err:
        pytest.fail(f"{err}\n{log.read_text()[-4000:]}")


def check_console(stack: EmulatedStack) -> None:
    url = stack.environment["COLDSTREAM_CONSOLE_URL"]
    assert url != stack.resolver_url
    page = httpx.get(f"{url}/streams", timeout=60)
    assert "Nothing is archived yet" in page.text
    style = page.text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    assert "--accent" in httpx.get(url + style, timeout=60).text
    sent = {"kind": "scrub", "step": "create"}
    made = httpx.post(f"{url}/jobs/new", data=sent, headers={"Origin": url}, timeout=60)
    assert made.status_code == 303
    assert httpx.get(f"{url}/jobs", headers={"Host": "evil.example"}, timeout=60).status_code == 421


def test_without_the_parameter_there_is_none() -> None:
    with EmulatedStack() as stack:
        assert "ConsoleFunction" not in stack.functions
        assert not stack.environment.get("COLDSTREAM_CONSOLE_URL")
