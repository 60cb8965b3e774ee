"""The HTTP API of jobs and streams, `/v1/…`, as a function behind API Gateway: by Powertools, as the resolver's.

Begin with `app`, which has all routes. `job_routes` and `stream_routes` read requests and answer them; `job_bodies` and
`stream_bodies` are their JSON; `serving` opens the archive; `job_rights` says who may do what with jobs.

Nothing but `functions/` imports this package: what a job is, and what a view of a stream is, is in `jobs` and `browse`.
"""
