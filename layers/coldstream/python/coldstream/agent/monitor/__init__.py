"""What the agent shows: its status and metrics over HTTP, and the checks of `coldstream agent --check`.

`status.py` has the values that are shown, `metrics.py` counts, `http.py` answers; `check_suite.py` runs the checks.
Nothing here changes what the agent does.
"""
