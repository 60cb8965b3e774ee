"""Asks a running agent, or a gateway, for its status, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coldstream.agent.monitor.status import AgentStatus
    from coldstream.read.response import HttpResponse

TIMEOUT_S = 10.0
MAX_STATUS_BYTES = 64 << 20


def check_agent_url(url: str, *, option: str, example: str = "http://127.0.0.1:9478") -> str:
    """Return the address of an agent's status. Raises InvalidSettingError, naming the option, if `url` is no URL."""
    import urllib3

    from coldstream.errors import InvalidSettingError

    try:
        parts = urllib3.util.parse_url(url)
    except urllib3.exceptions.LocationParseError as err:
        raise InvalidSettingError(option, str(err)) from err
    if parts.scheme not in {"http", "https"} or not parts.host:
        raise InvalidSettingError(option, f"{url!r} is not a URL such as {example}")
    return url.rstrip("/") + "/status"


def fetch_agent_status(url: str, *, option: str = "--url") -> AgentStatus:
    """Ask the agent at an address, once. Raises UnavailableError, and InvalidSettingError as `check_agent_url` does."""
    from coldstream.agent.monitor.status import AgentStatus

    address = check_agent_url(url, option=option)
    note = f"is an agent running? `coldstream agent` starts one; the address of its --listen is {option} here"
    return AgentStatus.from_json(fetch_status(address, note), source=address)


def fetch_status(address: str, note: str) -> bytes:
    """Ask for a status, once. Raises UnavailableError, with the note if nobody answers there."""
    from http.client import HTTPException

    from coldstream.errors import UnavailableError
    from coldstream.read.http import HttpClient

    client = HttpClient(connections=1, read_timeout_s=TIMEOUT_S, attempts=1)
    try:
        return client.get(address, dict, lambda response: _body(address, response))
    except UnavailableError as err:
        if isinstance(err.__cause__, (OSError, HTTPException)):
            err.add_note(note)
        raise


def _body(address: str, response: HttpResponse) -> bytes:
    from coldstream.errors import UnavailableError

    # One byte more than allowed tells a body that was cut from one that just fits.
    body = response.read(MAX_STATUS_BYTES + 1)
    if response.status != 200:  # noqa: PLR2004 - HTTP's OK
        raise UnavailableError(f"{address} answered {response.status}: {body[:200].decode(errors='replace')}")
    if len(body) > MAX_STATUS_BYTES:
        raise UnavailableError(f"{address} answered more than {MAX_STATUS_BYTES} bytes")
    return body
