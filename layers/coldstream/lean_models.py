"""Make what the SDK knows of AWS's services quick to load: lean_models.py DATA SERVICE…, for the layer's Makefile.

DATA is botocore's directory of data. What stays is of these services alone, without the documentation, which is most of
it, and not compressed. A client reads all of it when it is made, so a function's first answer waits for it.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any


def make_lean(data: Path, services: AbstractSet[str]) -> None:
    """Rewrite a directory of data in place."""
    for directory in [path for path in data.iterdir() if path.is_dir()]:
        if directory.name not in services:
            shutil.rmtree(directory)
            continue
        for path in directory.rglob("*.json.gz"):
            model = _without_documentation(json.loads(gzip.decompress(path.read_bytes())))
            _write(path.with_suffix(""), model)
            path.unlink()
        for path in directory.rglob("examples-*.json"):
            path.unlink()
    endpoints = json.loads((data / "endpoints.json").read_bytes())
    for partition in endpoints["partitions"]:
        partition["services"] = {name: one for name, one in partition["services"].items() if name in services}
    _write(data / "endpoints.json", endpoints)


def _without_documentation(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_documentation(one) for one in value]
    if not isinstance(value, dict):
        return value
    # Empty, not gone: botocore reads some of them. A field that is called so has a shape, and no text.
    return {
        key: "" if key == "documentation" and isinstance(one, str) else _without_documentation(one)
        for key, one in value.items()
    }


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, separators=(",", ":")))


if __name__ == "__main__":
    make_lean(Path(sys.argv[1]), set(sys.argv[2:]))
