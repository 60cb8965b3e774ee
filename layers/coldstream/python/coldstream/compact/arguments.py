"""The options of a compaction as text, for the command line and for Spark's job alike.

This module imports nothing heavy: the command line reads it to start, whichever command is run.
"""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.terminal.options import StreamArguments, option

LONGEST_URL_EXPIRY = "7d"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactArguments(StreamArguments):
    """What a user may say of a compaction; `CompactOptions.of` checks it."""

    every: bool = option(False, flag="--all", help="Compact every stream of every vhost, in each of its incarnations.")
    older_than: str = option(
        "1h", help="Leave a fragment alone if it has a chunk younger than this, such as 30d.", metavar="TIME"
    )
    target_size: str = option(
        "512MiB", help="Merge up to this size. Leave fragments alone from half of it on.", metavar="SIZE"
    )
    encoding: str = option("identity", help="identity, or zstd-seekable: compressed, for what is seldom read.")
    level: int = option(3, help="Level of compression, 1 to 19.")
    url_expiry: str = option(
        LONGEST_URL_EXPIRY,
        help="How long URLs of the archive's resolvers are valid. What was merged stays an hour longer than that.",
        metavar="TIME",
    )
    dry_run: bool = option(False, help="Show what a run would save and cost, and change nothing.")
