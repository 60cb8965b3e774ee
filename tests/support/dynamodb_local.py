"""DynamoDB Local, AWS's own emulator: strict where moto is not, and at pace with a million items.

`scripts/dynamodb-local/fetch` brings it to .cache/dynamodb-local; it wants Java 17. It listens on all interfaces, as it
knows no other way, on a port that was free. All is in memory, and the same to every region and account.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.support.server import ROOT, Server

LIBRARIES = ROOT / ".cache" / "dynamodb-local" / "lib"
MAIN = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"


def find_dynamodb_local() -> Path | None:
    """Return where its jars are, or None where they, or Java, are missing."""
    return LIBRARIES if shutil.which("java") is not None and LIBRARIES.is_dir() else None


class DynamoDBLocal(Server):
    """The emulator, empty. Ready when its context is entered; takes about 2 s. `heap` is Java's own, without items."""

    def __init__(self, *, heap: str = "512m") -> None:
        super().__init__()
        self._heap = heap

    def command(self) -> Sequence[str]:
        java = ["java", f"-Xmx{self._heap}", f"-Djava.library.path={LIBRARIES}", "-cp", f"{LIBRARIES}/*", MAIN]
        return [*java, "-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(self.port)]
