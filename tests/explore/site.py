"""What an actor has of the world: a table, a bucket, clocks and names. Whatever it does with them is a request."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from coldstream.store.object_values import ListedObject, ObjectVersion
from coldstream.store.ports import RangeStream
from coldstream.store.read_range import ReadRange
from coldstream.units import ByteRange, TimestampMs
from tests.explore.base import KEYS
from tests.explore.requests import YIELDING, Part, Request, hashable
from tests.explore.table_pages import PAGED, TablePages

Ask = Callable[[Request], Any]

OF_NAMES = frozenset({
    "bound_cluster", "bind_cluster", "grants", "put_grant", "delete_grant", "policies", "put_policy", "delete_policy",
    "cursor", "put_cursor", "delete_cursor", "state_item", "state_items", "put_state", "add_state", "delete_state",
})  # fmt: skip
"""Methods of the table that are not about the stream's own partition."""

SPANS = KEYS.all_spans
"""Where nobody in these worlds writes: a listing of it is empty at every moment, and so is no request to place."""

MAPPINGS = frozenset({"heads", "items_at_once"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is the same for all processes: how many objects or items come at a time, and what the bucket keeps."""

    page: int | None = None
    """None for a thousand, by which all comes at once here."""

    versioned: bool = False


class SiteTable:
    """The port to the table: each method is one request, unless it reads page by page."""

    def __init__(self, ask: Ask, page: int | None) -> None:
        self._ask = ask
        self._pages = None if page is None else TablePages(ask, page)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if self._pages is not None and name in PAGED:
            return getattr(self._pages, name)  # type: ignore[no-any-return]
        part = Part.NAMES if name in OF_NAMES else Part.LOG

        def call(*args: Any, **options: Any) -> Any:
            return self._ask(Request(part, name, hashable(args), hashable(options)))  # type: ignore[arg-type]

        def iterate(*args: Any, **options: Any) -> Iterator[Any]:
            yield from call(*args, **options)

        def look_up(*args: Any, **options: Any) -> Any:
            answer = call(*args, **options)
            return answer if answer is None else dict(answer)

        return iterate if name in YIELDING else look_up if name in MAPPINGS else call


class SiteObjects:
    """The port to the bucket. Listings come page by page, each as the bucket is at its moment."""

    bucket = "memory"

    def __init__(self, ask: Ask, clock: Callable[[], TimestampMs], page: int | None) -> None:
        self._ask = ask
        self._page = page or 1000
        self.clock = clock

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            return self._ask(Request(Part.BUCKET, name, hashable(args), hashable(options)))  # type: ignore[arg-type]

        return call

    def open_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeStream:
        # An answer may be given again: it has to be a value, and no stream that was read.
        return ReadRange(self.get_range(key, byte_range, if_match=if_match))

    def put_new(self, key: str, body: BinaryIO, *, size_bytes: int, crc32: int, note: str | None = None) -> None:
        body.seek(0)
        args = key, body.read()
        self._ask(Request(Part.BUCKET, "put_new", args, (("crc32", crc32), ("note", note), ("size_bytes", size_bytes))))

    def presign_get(self, key: str, byte_range: ByteRange, *, expires_s: int) -> str:
        return f"memory://{key}?range={byte_range.http}&expires={expires_s}"

    def keys(self, prefix: str) -> Iterator[str]:
        for one in self.listed(prefix):
            yield one.key

    def listed(self, prefix: str, *, after: str | None = None) -> Iterator[ListedObject]:
        while prefix != SPANS:
            page = self._ask(Request(Part.BUCKET, "listed", (prefix,), (("after", after), ("limit", self._page))))
            yield from page
            if len(page) < self._page:
                return
            after = page[-1].key

    def versions(self, prefix: str) -> Iterator[ObjectVersion]:
        after: tuple[str, str] | None = None
        while prefix != SPANS:
            page = self._ask(Request(Part.BUCKET, "versions", (prefix,), (("after", after), ("limit", self._page))))
            yield from page
            if len(page) < self._page:
                return
            after = page[-1].key, page[-1].version_id

    def unfinished_uploads(self, prefix: str) -> Iterator[Any]:
        yield from self._ask(Request(Part.BUCKET, "unfinished_uploads", (prefix,)))


class Site:
    """All that one process has. `tell` says what somebody was told from now on: invariants hold the world to it."""

    def __init__(self, ask: Ask, surroundings: Surroundings) -> None:
        self._ask = ask
        self.is_versioned = surroundings.versioned
        self.table = SiteTable(ask, surroundings.page)
        self.objects = SiteObjects(ask, self.clock, surroundings.page)

    def clock(self) -> TimestampMs:
        """Ask AWS's clock."""
        return self._ask(Request(Part.CLOCK, "now"))  # type: ignore[no-any-return]

    def host_clock(self) -> TimestampMs:
        """Ask the clock of this process's host, which is wrong."""
        return self._ask(Request(Part.HOST_CLOCK, "now"))  # type: ignore[no-any-return]

    def wait(self, ms: int) -> None:
        """Let time pass, for all."""
        self._ask(Request(Part.WAIT, "wait", (ms,)))

    def tell(self, what: str, fact: str) -> None:
        """Say that somebody outside was told something."""
        self._ask(Request(Part.TELL, what, (fact,)))

    def begin(self, what: str) -> None:
        """Say that a look at the archive begins, which takes several requests."""
        self._ask(Request(Part.TELL, "begins", (what,)))

    def end(self, what: str, found: Hashable) -> None:
        """Say what it found: invariants hold that against all moments since it began."""
        self._ask(Request(Part.TELL, "finds", (what, found)))

    def name(self) -> str:
        """Return a name that nothing else has: what `uuid4` and `token_hex` give."""
        return self._ask(Request(Part.NAME, "new"))  # type: ignore[no-any-return]
