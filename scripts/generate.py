"""Write what is generated from the code: docs/openapi.json, and the schemas of the events."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel

from coldstream.archive.events import SegmentLostDetail, SegmentRolledDetail
from coldstream.runtime.resolver_api import openapi

DOCS = Path(__file__).parents[1] / "docs"


SCHEMAS: dict[str, type[BaseModel]] = {
    "segment-rolled.schema.json": SegmentRolledDetail,
    "segment-lost.schema.json": SegmentLostDetail,
}
"""The details of the events, by the file that describes them."""


def schema_of(detail: type[BaseModel]) -> str:
    """Return the JSON schema of an event's detail."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **detail.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    (DOCS / "openapi.json").write_text(openapi())
    for name, detail in SCHEMAS.items():
        (DOCS / name).write_text(schema_of(detail))
