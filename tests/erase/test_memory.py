from __future__ import annotations

from collections.abc import Callable

from coldstream.erase.chunk import Doubts
from coldstream.erase.fragment import erase_fragment
from coldstream.manifest.entry import Encoding
from coldstream.units import MIB
from tests.erase.archived import MessageArchive, body_of
from tests.erase.samples import between
from tests.support.memory import peak_bytes

FRAGMENT_BYTES = 60 * MIB


def rewriting(encoding: Encoding) -> Callable[[], object]:
    """Archive a fragment of 60 MiB, of which half of the messages are erased."""
    archive = MessageArchive(message=lambda offset: body_of(offset) * 2000)
    entry = archive.add(1250, records=1, encoding=encoding)
    assert entry.data_bytes > FRAGMENT_BYTES * 0.6

    def rewrite() -> None:
        fragment = erase_fragment(archive.objects, entry, between(0, 600), Doubts())
        assert fragment is not None
        with fragment:
            assert fragment.messages > 400

    return rewrite


def test_a_fragment_is_rewritten_in_less_memory_than_it_has_bytes() -> None:
    assert peak_bytes(rewriting, Encoding.IDENTITY) < 28 * MIB
