"""What OpenAPI says of the bodies that create and edit jobs: the schemas of `jobs.specs`, which the routes read by."""

from __future__ import annotations

import json
from typing import Any

from coldstream.jobs.specs import SPECS, spec_schema

_SCHEMAS = "#/components/schemas/"
_BODIES = {"createJob": "JobSpec", "previewJob": "JobSpec", "editJob": "JobEdit"}


def with_job_bodies(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the schemas of specs, and with the bodies of the operations that take them."""
    schemas = document["components"]["schemas"]
    spec = json.loads(json.dumps(spec_schema()).replace("#/$defs/", _SCHEMAS))
    schemas |= spec.pop("$defs")
    schemas["JobSpec"] = spec | {"title": "JobSpec", "description": "What a job is to do"}
    _tell_erasures_apart(schemas)
    schemas["JobEdit"] = _edit_schema(schemas)
    shown = schemas["JobBody"]["properties"]["spec"]
    shown_as = {"allOf": [{"$ref": f"{_SCHEMAS}ShownJobSpec"}], "description": shown["description"]}
    schemas["JobBody"]["properties"]["spec"] = shown_as
    for path in document["paths"].values():
        for operation in path.values():
            if (name := _BODIES.get(operation["operationId"])) is not None:
                content = {"application/json": {"schema": {"$ref": _SCHEMAS + name}}}
                operation["requestBody"] = {"required": True, "content": content}
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    return document


def _tell_erasures_apart(schemas: dict[str, Any]) -> None:
    """Say of an erasure what is given, and what is shown: never the values that it selects by."""
    given = schemas["EraseSpec"]
    shown = json.loads(json.dumps(given)) | {"title": "ShownEraseSpec"}
    schemas["ShownEraseSpec"] = shown
    spec = json.dumps(schemas["JobSpec"]).replace("/EraseSpec", "/ShownEraseSpec")
    schemas["ShownJobSpec"] = json.loads(spec) | {"title": "ShownJobSpec", "description": "What a job is to do"}
    del given["properties"]["selection"]
    given["anyOf"] = [
        {"required": [name], "properties": {name: {"type": "string"}}} for name in ("offsets", "key", "filter_value")
    ] + [{"required": ["properties"], "properties": {"properties": {"type": "array", "minItems": 1}}}]


def _edit_schema(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an edit: the fields that some kind of job lets change, without defaults."""
    fields: dict[str, Any] = {}
    for kind in SPECS.values():
        for name, schema in schemas[kind.__name__]["properties"].items():
            if name in kind.EDITABLE:
                fields[name] = {key: value for key, value in schema.items() if key != "default"}
    return {
        "title": "JobEdit",
        "description": "Fields of a job with their new values. Which can change depends on its kind",
        "type": "object",
        "properties": dict(sorted(fields.items())),
        "additionalProperties": False,
        "minProperties": 1,
    }
