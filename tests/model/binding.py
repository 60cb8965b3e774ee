"""The binding of model and code: a module with all steps that the code made, of which TLC tells those it allows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.model.observed import CHUNKS, VARIABLES
from tests.model.tlc import Verdict, check
from tests.model.transitions import Transitions

ACTIONS = (
    "Stage", "Unstage", "Put", "Commit", "Discard", "Keep", "Record", "Unkeep", "Lose", "Replace", "Remove", "Delete",
    "Undelete", "BeginPurge", "Forget", "EndPurge", "Hold", "Tell", "Release", "Pass", "Claim", "Claim more", "Sweep",
    "EndClaim", "Bury", "Fence", "Collect",
)  # fmt: skip
"""All that the model can do."""

_ALLOWED = re.compile(r'<<"allowed", (\d+), "([^"]+)">>')

MODULE = """---- MODULE Observed ----
EXTENDS Coldstream, TLC, Sequences
AllCopies == {{[f |-> s.f, n |-> s.n, h |-> h] : s \\in Spans, h \\in 0 .. 2}}
AllCuts == {{<<s.f, s.n>> : s \\in Spans}}
States == <<
{states}
>>
Steps == <<
{steps}
>>
VARIABLE at
\\* Doing takes one or two objects; here it is known which a step buries.
DiscardMore ==
    /\\ UNCHANGED <<entries, objects>> /\\ tombs' /= tombs
    /\\ Discard({{o \\in MayCommit : Tombs({{o}}, FALSE) \\subseteq tombs' \\ tombs}})
ObservedInit ==
    /\\ at \\in 1 .. Len(Steps)
    /\\ left = 1 /\\ urls = {{}} /\\ asleep = {{}}
    /\\ LET s == States[Steps[at][1]] IN
        {before}
ObservedNext ==
    /\\ at > 0
    /\\ at' = 0
    /\\ LET s == States[Steps[at][2]] IN
        {after}
    /\\ \\/ \\E action \\in Does : Doing(action) /\\ Follows /\\ PrintT(<<"allowed", at, action>>)
       \\/ DiscardMore /\\ Follows /\\ PrintT(<<"allowed", at, "Discard">>)
====
"""

CONFIG = """INIT ObservedInit
NEXT ObservedNext
CONSTANTS
    Chunks = {chunks}
    Split = {split}
    Archived = {{}}
    Copies <- AllCopies
    Cuts <- AllCuts
    Does = {{{does}}}
    Fences = {generations}
    Spare = 2
    Overwrites = 1
    Ids = {{{ids}}}
    Stale = {generations}
    Without = ""
"""


@dataclass(frozen=True, slots=True)
class Agreement:
    """What TLC says of the code's steps: those that the model forbids, each as a text, and the actions that it took."""

    forbidden: tuple[str, ...]
    taken: frozenset[str]
    verdict: Verdict


def compare(directory: Path, found: Transitions, *, model: str | None = None, heap: str = "1g") -> Agreement:
    """Have TLC hold each step of the code against the model, or against another text of it."""
    states, steps = list(found.states), list(found.steps)
    module = MODULE.format(
        states=",\n".join(f"[{', '.join(f'{name} |-> {value}' for name, value in state)}]" for state in states),
        steps=",\n".join(f"<<{before}, {after}>>" for before, after in steps),
        before="\n        ".join(f"/\\ {name} = s.{name}" for name in (*VARIABLES, "dead", "regretted")),
        after="\n        ".join(f"/\\ {name}' = s.{name}" for name in VARIABLES),
    )
    ids = sorted({one for state in states for one in re.findall(r'id \|-> ("[^"]*")', str(state))})
    generations = 1 + max(int(one) for state in states for one in re.findall(r"g(?:en', '| \|-> )(\d+)", str(state)))
    config = CONFIG.format(
        chunks=CHUNKS,
        split=CHUNKS // 2,
        does=", ".join(f'"{name}"' for name in ACTIONS),
        generations=generations,
        ids=", ".join(ids),
    )
    modules = {"Observed": module, **({} if model is None else {"Coldstream": model})}
    verdict = check(directory, "Observed", config, modules, heap=heap)
    allowed = _ALLOWED.findall(verdict.text)
    numbers = {int(number) for number, _ in allowed}
    forbidden = tuple(
        f"{found.steps[step]}: {_difference(states[step[0] - 1], states[step[1] - 1])}"
        for number, step in enumerate(steps, 1)
        if number not in numbers
    )
    return Agreement(forbidden, frozenset(action for _, action in allowed), verdict)


def _difference(before: tuple[tuple[str, str], ...], after: tuple[tuple[str, str], ...]) -> str:
    """Tell what a step changes."""
    changed = [
        f"{name} from {old} to {new}"
        for (name, old), (_, new) in zip(before, after, strict=True)
        if old != new and name in VARIABLES
    ]
    return "; ".join(changed)
