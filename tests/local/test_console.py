"""The console on the emulated stack: off unless its parameter says so, and then at an address of its own."""

from __future__ import annotations

import httpx

from coldstream.local.stack import EmulatedStack


def test_the_console_is_served_beside_the_resolver() -> None:
    with EmulatedStack(parameters={"Console": "on"}) as stack:
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
