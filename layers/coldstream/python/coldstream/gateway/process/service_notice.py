"""Words for systemd, if it started the process (Type=notify): READY=1 and STOPPING=1, by the protocol of sd_notify."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify_supervisor(state: str) -> None:
    """Say so, if somebody listens; a datagram that doesn't arrive changes nothing for us."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # A name that begins with @ is in the abstract namespace, where the first byte is 0.
    name = "\0" + address[1:] if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notice:
        notice.sendto(state.encode(), name)
