"""In-memory doubles of the two ports, for tests and trials: `table` for the manifest, `objects` for the bucket.

They pass the contract suite of the real ones (tests/store). `partition` applies a change to the items of a stream, and
`visibility` makes reads as weakly consistent as DynamoDB's. Nothing outside tests and trials may import this package.
"""
