"""What the job maintain.py does, each action in its file; the work itself is the library's.

    arguments.py what the job is told
    archive.py   the archive, as it travels to executors
    tasks.py     tasks on executors, their results in order, and what comes back if one fails
    split.py     a long stream as ranges of offsets
    streams.py   retention and sweep: some streams a task
    garbage.py   ranges of the bucket's keys
    scrub.py     streams, or parts of a long one
    rebuild.py   streams, or slices of a long one's listing
    erase.py     fragments rewritten ahead of the driver, which commits them
    summary.py   the summaries of tasks as one

Executors get values and return values. Nothing here knows arguments or a terminal.
"""
