"""The process that `harness.in_child` starts (`python -m bench.child`)."""

from bench.harness import run_as_child

if __name__ == "__main__":
    run_as_child()
