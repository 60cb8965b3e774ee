"""Who looks at a page, and what they may see and do: by the patterns of their token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coldstream.jobs.specs import EraseSpec, ExportSpec, JobSpec, LoadSpec
from coldstream.jobs.targets import ToStream, ToSuperStream
from coldstream.web.access_tokens import Right, TokenHolder
from coldstream.web.refusal import FORBIDDEN, Refusal

_WILD = frozenset("*?[")
_ALL = "*"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who sent a request. `has_session` says that there is somebody to log out."""

    holder: TokenHolder
    is_read_only: bool = False
    has_session: bool = False

    @property
    def sees_all(self) -> bool:
        """Whether every stream may be read: only then are things shown that are of no one stream."""
        return self.may_read_like(_ALL)

    @property
    def may_create(self) -> bool:
        """Whether there is anything at all that may be changed."""
        if self.is_read_only:
            return False
        return self.holder.grants is None or any(Right.WRITE in grant.rights for grant in self.holder.grants)

    def may_read(self, stream: str) -> bool:
        """Whether a stream may be seen."""
        return self.holder.may(Right.READ, stream)

    def may_read_like(self, pattern: str) -> bool:
        """Whether all streams that a pattern of a job matches may be seen."""
        return self._may_like(Right.READ, pattern)

    def may_see(self, spec: JobSpec) -> bool:
        """Whether a job may be seen: all streams that it works on may be read."""
        return all(map(self.may_read_like, _patterns(spec)))

    def may_change(self, spec: JobSpec) -> bool:
        """Whether a job may be created, steered and deleted: all that it works on, and its target, may be written."""
        return not self.is_read_only and all(self._may_like(Right.WRITE, one) for one in (*_patterns(spec), *_to(spec)))

    def check_change(self, spec: JobSpec) -> None:
        """Raise Refusal if a job may not be changed."""
        if self.is_read_only:
            raise Refusal(FORBIDDEN, "this console only reads: it was started with --read-only")
        if not self.may_change(spec):
            raise Refusal(FORBIDDEN, f"{self.holder.name} may not do this with the streams or the target of this job")

    def _may_like(self, right: Right, pattern: str) -> bool:
        """Whether a right holds for all names that a pattern matches.

        A pattern that is a name is one name. Another one is within a grant for all, for a beginning of it that has no
        wildcard, or for the same pattern; what else may be within is not looked for.
        """
        if self.holder.grants is None:
            return True
        if not _WILD & set(pattern):
            return self.holder.may(right, pattern)
        for grant in self.holder.grants:
            beginning = grant.pattern[:-1]
            is_prefix = grant.pattern.endswith("*") and not _WILD & set(beginning)
            is_within = grant.pattern == pattern or (is_prefix and pattern.startswith(beginning))
            if right in grant.rights and is_within:
                return True
        return False


def _patterns(spec: JobSpec) -> Iterable[str]:
    """Return the streams that a job works on; none named means all."""
    if isinstance(spec, EraseSpec):
        return (spec.stream,)
    return spec.streams or (_ALL,)


def _to(spec: JobSpec) -> Iterable[str]:
    """Return what a job writes to, as streams; anything else needs the right to write all."""
    if isinstance(spec, LoadSpec):
        if isinstance(spec.target, ToStream):
            return (spec.target.name,)
        # The partitions of a super stream are streams of their own, whose names begin with its name.
        return (f"{spec.target.name}-*",) if isinstance(spec.target, ToSuperStream) else (_ALL,)
    return (_ALL,) if isinstance(spec, ExportSpec) else ()
