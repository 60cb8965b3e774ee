"""EMR Serverless in memory, as it answers: a token starts one run, runs have states, cancelling takes time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coldstream.dispatch.emr_arguments import ScriptCall
from coldstream.dispatch.emr_run import EmrRun
from coldstream.errors import ColdstreamError


@dataclass
class MemoryEmr:
    """Implements `EmrRuns`. `states` and `details` are what it says of runs; `errors` are raised by the next calls."""

    calls: dict[str, ScriptCall] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    errors: list[ColdstreamError] = field(default_factory=list)
    lost_answers: list[ColdstreamError] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    tags: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def start(self, token: str, name: str, call: ScriptCall, tags: Mapping[str, str]) -> str:
        self._fail()
        if token not in self.tokens:
            run_id = f"00run{len(self.tokens)}"
            self.tokens[token], self.calls[run_id], self.states[run_id] = run_id, call, "SUBMITTED"
            self.names.append(name)
            self.tags[run_id] = tags
        assert self.calls[self.tokens[token]] == call, "the same token with other parameters"
        if self.lost_answers:
            raise self.lost_answers.pop(0)
        return self.tokens[token]

    def look(self, run_id: str) -> EmrRun | None:
        self._fail()
        if run_id not in self.states:
            return None
        state = self.states[run_id]
        if state == "CANCELLING":
            self.states[run_id] = "CANCELLED"
        return EmrRun(run_id, state, self.details.get(run_id, ""))

    def cancel(self, run_id: str) -> None:
        self._fail()
        if self.states.get(run_id) in {"SUBMITTED", "PENDING", "SCHEDULED", "RUNNING"}:
            self.states[run_id] = "CANCELLING"

    @property
    def only_run(self) -> str:
        (run_id,) = self.states
        return run_id

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
