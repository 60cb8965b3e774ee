"""The native module, where it is installed: the same decoding as in this package, an order of magnitude faster.

`native/` has its source; `make setup` builds it, and for the layer `make sam-build` (docs/native.md). It is no
dependency: what is not there, or belongs to another release, is done in Python, with the same results and the same
errors.
"""

from __future__ import annotations

from types import ModuleType

CONTRACT = 5
"""What both sides agreed on; raised with each change of what is called."""


def load_native() -> ModuleType | None:
    """Return the native module, or None if there is none of this release."""
    try:
        import _coldstream_native  # noqa: PLC0415  it may be missing
    except ImportError:
        return None
    return _coldstream_native if _coldstream_native.CONTRACT == CONTRACT else None


NATIVE = load_native()
