"""The archive on one machine: what `coldstream up`, the tests and the benchmarks run instead of AWS.

`stack` is the way in: it starts the embedded AWS (`emulator`), creates what template.yaml declares on it (`template`,
`deployment`), and runs each function in a process of its own (`child_process`, `function_process`), called by a queue
(`poller`) or over HTTP (`http_api`).

Nothing here knows what the functions do: it calls their handlers, as Lambda does. Nothing here runs on AWS.
"""
