"""The write path, as the upload function runs it: from an agent's event to objects in S3 and entries in the manifest.

Begin with `upload`. It reads the staged copy (`staged_segment`), holds it to what is archived (`coverage`,
`contradiction`), cuts it into fragments (`cutter`, `draft`, `borders`), writes them and commits their entries
(`commit`). A copy that cannot be archived goes to `quarantine`; `missing` records why offsets are missing. `events` is
the schema of the agent's events, whose content is in `segment_rolled` and `segment_lost`. `plain_event` reads them
without it, and `envelope` is what EventBridge puts around them.

What runs beside the broker imports the events, and what the manifest covers, from here. Nothing here knows Lambda, SQS
or how events travel, and nothing reads the archive for consumers: that is `resolve`, which this package never imports.
"""
