"""Templates: what is shown is escaped, what is missing is an error, and every page has its frame."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from coldstream.console import words
from coldstream.console.json_markup import json_markup
from coldstream.console.page_request import PageRequest
from coldstream.console.static_files import StaticFile
from coldstream.console.stream_address import path_of

TEMPLATES = Path(__file__).parent / "templates"
THEME_COOKIE = "coldstream-theme"
THEMES = ("auto", "light", "dark")
_SECTIONS = (("/streams", "Streams"), ("/jobs", "Jobs"), ("/health", "Health"))


def make_environment(static: Mapping[str, StaticFile]) -> Environment:
    """Return the environment of all templates."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    for name in ("number", "short_number", "size", "money", "moment", "moment_ms", "duration", "percent"):
        made.filters[name] = getattr(words, name)
    made.filters |= {
        "plain": words.plain,
        "visible": words.visible,
        "body_text": words.body_text,
        "json_markup": json_markup,
    }
    made.globals |= {
        "static": lambda name: static[name].url,
        "path_of": path_of,
        "site_sections": _SECTIONS,
        "themes": THEMES,
    }
    return made


class Rendering:
    """Makes pages of templates."""

    def __init__(self, static: Mapping[str, StaticFile]) -> None:
        self._environment = make_environment(static)

    def page(self, asked: PageRequest, template: str, status: HTTPStatus = HTTPStatus.OK, **content: Any) -> Response:
        """Return a page, whole: htmx takes the part that it wants."""
        theme = asked.request.cookies.get(THEME_COOKIE, "")
        text = self._environment.get_template(template).render(
            asked=asked,
            visitor=asked.visitor,
            theme=theme if theme in THEMES else THEMES[0],
            here=asked.path,
            now=asked.now,
            ago=lambda value: words.ago(value, asked.now),
            **content,
        )
        return HTMLResponse(text, status)
