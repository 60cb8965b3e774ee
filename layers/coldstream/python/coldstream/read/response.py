"""The response to a request, and its body: read into new memory, or into a buffer of the caller's."""

from __future__ import annotations

from http.client import HTTPMessage, HTTPResponse, IncompleteRead


class HttpResponse:
    """Status, headers and body of a response. A body that ends early raises, as nothing else says that it is cut."""

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response
        self.status: int = response.status
        self.headers: HTTPMessage = response.headers

    @property
    def left_bytes(self) -> int | None:
        """How much of the body comes; None if the response does not say."""
        return self._response.length

    def read(self, most_bytes: int) -> bytes:
        """Read the body, and not more of it than so many bytes, as it is: without decoding a Content-Encoding."""
        data = self._response.read(most_bytes)
        if len(data) < most_bytes and self._response.length:
            raise IncompleteRead(data, self._response.length)
        return data

    def read_into(self, room: memoryview) -> None:
        """Fill the room with the next bytes of the body, without a copy on the way."""
        filled = self._response.readinto(room)
        if filled < len(room):
            raise IncompleteRead(b"", len(room) - filled)
