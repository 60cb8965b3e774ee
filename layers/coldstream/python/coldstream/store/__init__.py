"""The archive's storage on AWS: the manifest in DynamoDB, the objects in S3.

Only this package and the announcers know AWS's SDK. It stores what `manifest` plans and decides nothing itself. Begin
with `ports`, the two protocols that everybody above depends on, and what their reads may show. `table` and `objects`
implement them on AWS, `fast_reads` implements the reads without loading the SDK, and `memory` is the double for tests.
`sortkeys`, `attributes` and `items` are the layout of the table, `keys` that of the bucket, and `control` has what the
bucket must say by itself. `clock` is AWS's clock: what must agree with AWS is reckoned by it.
"""
