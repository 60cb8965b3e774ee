"""What is checked of every page: nothing inline, nothing from elsewhere, and nobody else's markup."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser

from tests.support.hostile_text import SCRIPT_MARK

VOID = {"meta", "link", "input", "br", "img", "hr"}
TAGS = {
    *("html", "head", "title", "meta", "link", "script", "body", "header", "nav", "main", "section", "article", "div"),
    *("span", "p", "a", "ul", "ol", "li", "dl", "dt", "dd", "h1", "h2", "h3", "h4", "small", "strong", "code", "pre"),
    *("kbd", "time", "bdi", "form", "label", "input", "select", "option", "textarea", "button", "fieldset", "legend"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "br"),
    *("svg", "path", "rect", "circle", "line", "text", "defs", "pattern"),
}
"""The elements that templates use. One of another kind is somebody else's."""
URLS = {"href", "src", "action", "formaction", "hx-get", "hx-post"}
TURNING = "\u202e\u202a\u2066\u200b\ufeff\x7f\x85"
OWN_URL = re.compile(r"(?:/|#|\?)(?!/)[^\\]*", re.ASCII)


@dataclass
class PageReport:
    """What was found in a page."""

    problems: list[str] = field(default_factory=list)
    ids: Counter[str] = field(default_factory=Counter)
    headings: list[int] = field(default_factory=list)
    inputs: list[dict[str, str]] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    forms: list[dict[str, str]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)


class _Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.report = PageReport()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag not in TAGS:
            self.report.problems.append(f"element <{tag}>")
        if len(found) != len(attrs):
            self.report.problems.append(f"<{tag}> has an attribute twice")
        if tag == "script" and not found.get("src", "").startswith("/static/"):
            self.report.problems.append("an inline script")
        for name, value in found.items():
            self._check_attribute(tag, name, value)
        self._note(tag, found)
        if tag not in VOID:
            self._open.append(tag)

    def _check_attribute(self, tag: str, name: str, value: str) -> None:
        if name in {"style", "srcdoc"} or name.startswith(("on", "hx-on", "hx-vals", "hx-vars", "data-hx")):
            self.report.problems.append(f"<{tag} {name}={value!r}>")
        if name in URLS and not OWN_URL.fullmatch(value):
            self.report.problems.append(f"<{tag} {name}={value!r}> leads elsewhere")
        if name != "value":  # what was typed is kept as it was
            self._check_text(value)
        if name == "id":
            self.report.ids[value] += 1

    def _note(self, tag: str, found: dict[str, str]) -> None:
        report = self.report
        if re.fullmatch("h[1-6]", tag):
            report.headings.append(int(tag[1]))
        if tag in {"input", "select", "textarea"} and found.get("type") not in {"hidden", "submit"}:
            report.inputs.append({**found, "wrapped": str("label" in self._open)})
        if tag == "label":
            report.labels.add(found.get("for", ""))
        if tag == "a":
            report.links.append(found.get("href", ""))
        if tag == "form":
            report.forms.append(found)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.report.problems.append(f"</{tag}> closes {self._open[-1:] or 'nothing'}")
        else:
            self._open.pop()

    def handle_comment(self, data: str) -> None:
        self.report.problems.append(f"comment {data[:60]!r}")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script" and data.strip():
            self.report.problems.append("a script with content")
        if self._open[-1:] != ["textarea"]:
            self._check_text(data)
        self.report.text.append(data)

    def _check_text(self, text: str) -> None:
        if any((ord(char) < 0x20 and char not in "\n\t\r") or char in TURNING for char in text):
            self.report.problems.append(f"characters that nobody sees: {text[:60]!r}")

    def close(self) -> None:
        super().close()
        if self._open:
            self.report.problems.append(f"not closed: {self._open}")


def check_page(html: str) -> PageReport:
    """Read a page; `problems` has what no page may have."""
    checker = _Checker()
    checker.feed(html)
    checker.close()
    report = checker.report
    report.problems += [f"id {name!r} {count} times" for name, count in report.ids.items() if count > 1]
    for one in report.inputs:
        if one["wrapped"] != "True" and one.get("id") not in report.labels and "aria-label" not in one:
            report.problems.append(f"a field without a label: {one}")
    if report.headings.count(1) != 1:
        report.problems.append(f"{report.headings.count(1)} headings of the first level")
    return report


def is_in_text(report: PageReport, mark: str = SCRIPT_MARK) -> bool:
    """Whether a mark is shown as text."""
    return mark in "".join(report.text)
