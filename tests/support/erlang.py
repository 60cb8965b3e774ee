"""Ask Erlang itself what it makes of terms: the judge of our hashes. A call costs about 0.5 s, whatever it asks."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from coldstream.routing.phash2 import Term

ORACLE = Path(__file__).with_name("erlang_oracle.escript")


def ask_erlang(questions: Sequence[str]) -> list[str]:
    """Return an answer for each line that `erlang_oracle.escript` understands."""
    text = "".join(f"{question}\n" for question in questions)
    done = subprocess.run(["escript", str(ORACLE)], input=text, capture_output=True, text=True, check=True, timeout=120)
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions), done.stderr
    return answers


def in_erlang(term: Term) -> str:
    """Write a term in Erlang's syntax, without a space."""
    if isinstance(term, bool):
        return str(term).lower()
    if isinstance(term, bytes):
        return f"<<{','.join(map(str, term))}>>"
    if isinstance(term, list):
        return f"[{','.join(map(in_erlang, term))}]"
    if isinstance(term, tuple):
        return f"{{{','.join(map(in_erlang, term))}}}"
    return f"'{term}'" if isinstance(term, str) else repr(term)
