"""Jobs: work on the archive that goes on until it is done, whoever's process dies meanwhile.

A job is one item of the manifest table. `specs` says what a job may be, `job` what is known of one, `changes` how its
state changes: all pure. `store` reads and writes jobs. `run` is what a kind of job is given while it runs, and
`attempt` runs it under a lease. The kinds themselves are in `upkeep` and `worker`, and nothing here knows them.
"""
