"""Personal data in a spec: the values by which an erasure selects are stored as salted digests alone."""

from __future__ import annotations

from coldstream.erase.conditions import read_conditions
from coldstream.errors import InvalidInputError
from coldstream.jobs.specs import EraseSpec, JobSpec, stored

_FIELDS = {"--filter-value": "filter_value", "--key": "key", "--property": "properties"}
"""The fields whose options `read_conditions` names."""

_FIELDS = {"--filter-value": "filter_value", "--key": "key", "--property": "properties"}
"""Fields of a job by the options of the command that erases at once."""


def sealed(spec: JobSpec) -> JobSpec:
    """Return a spec as it is stored. Raises InvalidInputError for an erasure that selects nothing, or badly."""
    if not isinstance(spec, EraseSpec):
        return stored(spec)
    if spec.selection is not None:
        raise InvalidInputError("selection", "is not to be given: say offsets, key, filter_value or properties")
    try:
        found = read_conditions(spec.filter_value, spec.key, list(spec.properties), None)
    except InvalidInputError as err:
        raise InvalidInputError(_FIELDS.get(err.field, err.field), err.problem) from err
    if found is None:
        if spec.offsets is None:
            raise InvalidInputError("offsets", "say offsets, key, filter_value or properties")
        return spec
    values = {"filter_value": None, "key": None, "properties": (), "selection": found.to_text()}
    return stored(spec.model_copy(update=values))
