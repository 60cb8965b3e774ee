"""The read path's lookups, as the resolver function runs them: from an offset or a timestamp to byte ranges in S3.

Begin with `resolver`, which answers everything that the HTTP API can be asked. `attach` finds where in the log an
offset spec attaches, `places` where in a fragment, `tail` what lies past the end of the archive, and `resolve` makes
ranges of them. `answer` has the questions and answers as values; `api`, `bodies`, `cursor` and `problem` have them as
JSON. `caller` and `permissions` say who may read what.

The client of the HTTP API, `read`, imports the values and their JSON from here. Nothing here makes HTTP requests, reads
chunks, or knows Lambda. What `bodies`, `problem` and `resolver` import must load fast: pydantic is for `api` alone.
"""
