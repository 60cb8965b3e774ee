from __future__ import annotations

from bench.harness import Section
from bench.report import circumstances, now, updated

PAGE = "# Benchmarks\n\nhead\n\n## Upload\n\nold upload\n\n## Reader\n\nold reader\n"


def section(title: str, how: str) -> Section:
    return Section(title, how, ("what", "MB/s"), (("reader", 1.0),))


def test_a_section_takes_the_place_of_the_one_before_and_the_others_stay() -> None:
    text = updated(PAGE, {"upload": section("Upload", "new upload")})
    assert text.index("head") < text.index("## Upload") < text.index("new upload") < text.index("old reader")
    assert "old upload" not in text
    assert text.endswith("old reader\n")


def test_the_last_section_ends_the_page() -> None:
    text = updated(PAGE, {"reader": section("Reader", "new reader")})
    assert "old reader" not in text
    assert text.endswith("|\n")
    assert text == updated(text, {"reader": section("Reader", "new reader")})


def test_a_new_section_goes_to_the_end_and_one_without_figures_changes_nothing() -> None:
    assert updated(PAGE, {"scan": section("Scan", "how")}).startswith(PAGE + "\n## Scan\n")
    assert updated(PAGE, {"reader": "it failed"}) == PAGE


def test_a_section_says_when_and_beside_what_it_was_measured() -> None:
    assert "load average of a minute" in circumstances(now())
