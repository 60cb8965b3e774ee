"""Generate docs/openapi.json, docs/openapi-jobs.json and the schemas of the events from the code."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from pydantic import BaseModel

from coldstream.archive.events import SegmentLostDetail, SegmentRolledDetail

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


SCHEMAS: dict[str, type[BaseModel]] = {
    "segment-rolled.schema.json": SegmentRolledDetail,
    "segment-lost.schema.json": SegmentLostDetail,
}
"""The events' details, by the file that describes them."""


def schema_of(detail: type[BaseModel]) -> str:
    """Return the JSON schema of an event's detail."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **detail.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    # Run by its path, as Lambda does: nothing but a function imports `coldstream.runtime`.
    for function, name in (("resolver", "openapi.json"), ("api", "openapi-jobs.json")):
        (DOCS / name).write_text(runpy.run_path(str(ROOT / f"functions/{function}/app.py"))["openapi"]())
    for name, detail in SCHEMAS.items():
        (DOCS / name).write_text(schema_of(detail))
