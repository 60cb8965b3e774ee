"""What only Lambda needs: the resolver function's requests, log, metrics and audit line, by Powertools.

Begin with `resolving`, which answers requests. `query` reads most of these without Powertools' API, which takes long to
load, and `resolver_api` reads all others. `audit` writes the line of each lookup, and `archive_reads` connects to the
archive.

Nothing but `functions/` imports this package. What a laptop, a client or a test of the answers needs is in `resolve`.
"""
