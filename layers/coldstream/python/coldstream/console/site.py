"""All that a page is made with: the archive, the options, the templates, and the sessions."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from coldstream.console.archive_access import ArchiveAccess
from coldstream.console.console_options import ConsoleOptions
from coldstream.console.page_request import PageRequest
from coldstream.console.permitted_streams import PermittedStreams
from coldstream.console.rendering import Rendering
from coldstream.console.sessions import Sessions
from coldstream.console.stream_address import text_of
from coldstream.manifest.stream import StreamId
from coldstream.web.refusal import FORBIDDEN, NO_PATH, Refusal


@dataclass(frozen=True, slots=True)
class Site:
    """What the pages of one console share. Without `sessions`, there are no tokens, and nobody logs in."""

    archive: ArchiveAccess
    options: ConsoleOptions
    rendering: Rendering
    sessions: Sessions | None
    streams: PermittedStreams

    def page(self, asked: PageRequest, template: str, status: HTTPStatus = HTTPStatus.OK, **content: Any) -> Response:
        """Return a page of a template."""
        return self.rendering.page(
            asked, template, status, has_tokens=self.sessions is not None, options=self.options, **content
        )

    def stream_of(self, asked: PageRequest) -> StreamId:
        """Return the stream of a page's path, deleted or not. Raises StreamNotFoundError, Refusal."""
        parts = [text_of(asked.request.path_params[name]) for name in ("vhost", "name", "incarnation")]
        vhost, name, incarnation = parts
        if vhost is None or name is None or incarnation is None:
            raise Refusal(NO_PATH, "no stream has such an address")
        # Before anything is looked up: whether a stream is there is nothing that everybody may know.
        if not asked.visitor.may_read(name):
            raise Refusal(FORBIDDEN, f"{asked.visitor.holder.name} may not see this stream")
        return self.archive.names.find(vhost, name, incarnation, deleted=True)
