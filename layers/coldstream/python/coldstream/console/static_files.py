"""Files that pages load: each at a URL with a digest of its content, so browsers may keep it for ever."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from starlette.responses import Response

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOREVER = "public, max-age=31536000, immutable"
DIRECTORY = Path(__file__).parent / "static"


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file with its URL."""

    url: str
    content: bytes
    media_type: str

    @property
    def response(self) -> Response:
        """The answer."""
        return Response(self.content, media_type=self.media_type, headers={"Cache-Control": _FOREVER})


def read_static_files(directory: Path = DIRECTORY) -> dict[str, StaticFile]:
    """Return all files by name."""
    found = {}
    for path in sorted(directory.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            digest = sha256(content).hexdigest()[:16]
            found[path.name] = StaticFile(f"/static/{digest}/{path.name}", content, _TYPES[path.suffix])
    return found
