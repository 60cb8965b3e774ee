"""What is kept of a run, and what of it still counts in the next one."""

from __future__ import annotations

from tests.mutation.results import Results
from tests.mutation.suite import Verdict


def test_what_was_noticed_counts_until_the_module_changes_and_a_survivor_until_a_test_does(tmp_path):
    results = Results("compact", tmp_path)
    assert results.known({"module": "code"}, "tests") == {}
    assert results.newest_tests() is None
    results.add("module:f:compare:1", Verdict.KILLED, "code", "tests")
    results.add("module:f:compare:2", Verdict.SURVIVED, "code", "tests")
    assert results.newest_tests() == "tests"
    killed = {"module:f:compare:1": Verdict.KILLED}
    assert results.known({"module": "code"}, "tests") == killed | {"module:f:compare:2": Verdict.SURVIVED}
    assert results.known({"module": "code"}, "other tests") == killed
    assert results.known({"module": "other code"}, "tests") == {}


def test_the_last_verdict_counts(tmp_path):
    results = Results("compact", tmp_path)
    for verdict in (Verdict.SURVIVED, Verdict.HANGS):
        results.add("module:f:compare:1", verdict, "code", "tests")
    assert results.known({"module": "code"}) == {"module:f:compare:1": Verdict.HANGS}
