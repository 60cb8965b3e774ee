"""Which lines a test reaches, and which lines are one statement."""

from __future__ import annotations

import ast
import threading

from tests.mutation.reached import ReachedLines, statement_around

SOURCE = """\
def told(number):
    if (
        number
        > 3
    ):
        return (
            number,
            1,
        )
    return None
"""


def test_lines_that_run_are_noted_in_all_threads_and_other_files_are_not():
    names: dict[str, object] = {}
    exec(compile(SOURCE, "/made/told.py", "exec"), names)
    exec(compile("def other():\n    pass\n", "/elsewhere/other.py", "exec"), names)
    with ReachedLines("/made/") as reached:
        names["told"](1)
        names["other"]()
    assert ("/made/told.py", 10) in reached.lines
    assert not {("/made/told.py", line) for line in (6, 7, 8)} & reached.lines
    assert {file for file, _ in reached.lines} == {"/made/told.py"}
    with ReachedLines("/made/") as reached:
        thread = threading.Thread(target=names["told"], args=(4,))
        thread.start()
        thread.join()
    assert ("/made/told.py", 7) in reached.lines


def test_a_statement_is_all_of_its_lines_and_one_with_a_body_those_before_it():
    tree = ast.parse(SOURCE)
    assert [statement_around(tree, line) for line in (1, 4, 8, 10)] == [
        range(1, 2),
        range(2, 6),
        range(6, 10),
        range(10, 11),
    ]
    assert statement_around(tree, 99) == range(99, 100)
