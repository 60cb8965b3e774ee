"""Write what is generated from the code: docs/openapi.json and docs/segment-rolled.schema.json."""

from __future__ import annotations

import json
from pathlib import Path

from coldstream.runtime.events import SegmentRolledDetail
from functions.resolver.app import openapi

DOCS = Path(__file__).parents[1] / "docs"


def segment_rolled_schema() -> str:
    """Return the JSON schema of the detail of a `Segment Rolled` event."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **SegmentRolledDetail.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    (DOCS / "openapi.json").write_text(openapi())
    (DOCS / "segment-rolled.schema.json").write_text(segment_rolled_schema())
