"""The kinds of jobs that need AWS alone: compaction, scrub, erasure and retention.

`kinds` has them by name; each is a function of a `JobRun` and an `UpkeepArchive`, in the file of its name. `turns`
leads a run through its streams. What they do to the archive is in `compact`, `scrub`, `erase` and `lifecycle`, and is
the same that commands and functions do; here is how it goes on after a stop. `dispatch` and `worker` run them.
"""
