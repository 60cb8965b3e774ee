"""Personal data in a spec: the values by which an erasure selects are stored as salted digests alone."""

from __future__ import annotations

from coldstream.erase.conditions import read_conditions
from coldstream.errors import InvalidInputError
from coldstream.jobs.specs import EraseSpec, JobSpec, stored


def sealed(spec: JobSpec) -> JobSpec:
    """Return a spec as it is stored. Raises InvalidInputError for an erasure that selects nothing, or badly."""
    if not isinstance(spec, EraseSpec):
        return stored(spec)
    if spec.selection is not None:
        raise InvalidInputError("selection", "is not to be given: say offsets, key, filter_value or properties")
    found = read_conditions(spec.filter_value, spec.key, list(spec.properties), None)
    if found is None:
        if spec.offsets is None:
            raise InvalidInputError("offsets", "say offsets, key, filter_value or properties")
        return spec
    values = {"filter_value": None, "key": None, "properties": (), "selection": found.to_text()}
    return stored(spec.model_copy(update=values))
