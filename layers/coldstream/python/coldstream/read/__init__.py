"""Reading the archive: as a client of the resolver, or straight from the manifest and the bucket.

For clients and jobs; functions never import it. `reader.py` and `aio.py` are what clients use: they need the resolver's
URL and nothing of AWS. `scan.py` is for jobs that may read the table and the bucket themselves. Begin with `reader.py`;
below it are `prefetch.py` (what to fetch next), `fetch.py` (one range), `client.py` (the resolver) and `http.py`.
"""
