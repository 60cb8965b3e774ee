"""Users that a command knows: it gets user and password, and its exit code says whether they are right.

It is started without a shell for each login. On its standard input are two lines, user and password, so neither is seen
in a list of processes. 0 is yes, 1 is no, anything else is a failure of the command, which is logged and is no, too.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Sequence

from coldstream.errors import InvalidSettingError

_LOG = logging.getLogger(__name__)
COMMAND_TIMEOUT_S = 5.0
_NO = 1


class PasswordCommand:
    """A command that checks passwords. `check` blocks: call it in a thread."""

    def __init__(self, command: Sequence[str], timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        """Take a program and its arguments. Raises InvalidSettingError for none."""
        if not command:
            raise InvalidSettingError("users_command", "is empty")
        self._command = tuple(command)
        self._timeout_s = timeout_s

    def check(self, user: str, password: str) -> bool:
        """Tell whether the command takes a user with this password. It is killed after `timeout_s`."""
        if any(end in text for end in "\n\r\0" for text in (user, password)):
            return False  # it could pass for two lines
        try:
            ended = subprocess.run(  # noqa: S603  the operator's own command, without a shell
                self._command,
                input=f"{user}\n{password}\n".encode(errors="surrogatepass"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=self._timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as err:
            # The error of a timeout has the input in it.
            _LOG.error("the command of users failed: %s", type(err).__name__)
            return False
        if ended.returncode not in {0, _NO}:
            _LOG.error("the command of users ended with %s", ended.returncode)
        return ended.returncode == 0
