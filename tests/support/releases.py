"""The releases of RabbitMQ that tests can ask for: the host's own, and newer ones in directories of their own.

A newer one is a Debian system that `scripts/install-newer-brokers` has put into a directory. Its programs run there by
chroot, in a mount namespace of their own that has the host's temporary directory at the same path: what a node writes
is seen by both under one name, and nothing stays mounted however it ends. Network, users and processes are the host's.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DEBIAN_SCRIPTS = Path("/usr/lib/rabbitmq/bin")

# Its arguments: the directory, the temporary directory, the command. `exec` leaves one process, to be signalled.
_ENTER = """
set -e
root=$1 tmp=$2; shift 2
mkdir -p "$root$tmp" && touch "$root/etc/hosts"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind /etc/hosts "$root/etc/hosts"
mount --bind "$tmp" "$root$tmp"
exec chroot "$root" "$@"
"""


@dataclass(frozen=True, slots=True)
class Release:
    """A RabbitMQ by its version's first two numbers, and the Debian suite it is of; no suite is the host's own."""

    version: str
    suite: str | None = None

    @property
    def remedy(self) -> str:
        """What to do where it is not installed."""
        if self.suite is None:
            return "on Debian: apt-get install rabbitmq-server"
        return "as root on Debian: scripts/install-newer-brokers"

    @property
    def directory(self) -> Path | None:
        """The directory of a newer release's system, whether it is there or not."""
        if self.suite is None:
            return None
        return (REPOSITORY / os.environ.get("COLDSTREAM_BROKERS", ".cache/brokers") / self.suite).resolve()

    @property
    def scripts(self) -> Path | None:
        """The directory of RabbitMQ's own scripts as the release's programs see it; None where it is not installed.

        Distributions put wrappers on the PATH that change user; behind them are the scripts that do not.
        """
        if shutil.which("epmd") is None:  # the host's serves all of them
            return None
        if self.directory is not None:
            wrapper = self.directory / DEBIAN_SCRIPTS.relative_to("/") / "rabbitmq-server"
            return DEBIAN_SCRIPTS if os.geteuid() == 0 and wrapper.is_symlink() else None
        if shutil.which("erl") is None:
            return None
        on_path = shutil.which("rabbitmq-server")
        for scripts in ([] if on_path is None else [Path(on_path).resolve().parent]) + [DEBIAN_SCRIPTS]:
            if (scripts / "rabbitmq-env").is_file():
                return (scripts / "rabbitmq-server").resolve().parent
        return None

    def command(self, script: str, *arguments: str) -> list[str]:
        """Return the command that runs one of RabbitMQ's scripts."""
        assert self.scripts is not None
        command = [str(self.scripts / script), *arguments]
        if self.directory is None:
            return command
        enter = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", _ENTER, "enter"]
        return [*enter, str(self.directory), tempfile.gettempdir(), *command]


HOST_RELEASE = Release("host")
RABBITMQ_4_0 = Release("4.0", "trixie")
RABBITMQ_4_3 = Release("4.3", "sid")
RELEASES = (HOST_RELEASE, RABBITMQ_4_0, RABBITMQ_4_3)
