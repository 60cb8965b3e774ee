"""The worker: the process that runs jobs, and the kinds of jobs that need more than AWS.

    worker.py            takes due jobs, and those of dead workers, and runs each in a thread
    kinds.py             which function runs which kind of job
    load.py              load: replay to a stream, a super stream, an exchange or a table
    export.py            export: files of rows, or of the broker's own segments
    store.py             store: record a broker's streams, by the machinery of the agent
    metrics.py           what /metrics says

Begin with worker.py, or with a kind. What a job is, and how its state changes, is in `jobs`; nothing here writes a job
but through a JobRun. Kinds that need AWS alone are in `upkeep`.
"""
