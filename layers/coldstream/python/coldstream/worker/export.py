"""The kind export: archived messages as files of rows, or whole chunks as the broker's own segment files."""

from __future__ import annotations

from coldstream.errors import InvalidInputError
from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd
from coldstream.jobs.specs import ExportSpec
from coldstream.worker.load import StreamLoader
from coldstream.worker.load_bounds import LoadBounds
from coldstream.worker.load_sink import LoadSink, TableSink, file_format
from coldstream.worker.segment_sink import SegmentSink
from coldstream.worker.tools import WorkerTools


def run_export(run: JobRun, tools: WorkerTools) -> RunEnd:
    """Export what a job says; each message is in one file, whatever died on the way. Raises as a load into a table."""
    spec = run.spec
    assert isinstance(spec, ExportSpec)
    by_message = spec.window_by == "message"
    bounds = LoadBounds.of_texts(spec.start, spec.end, run.began_at, by_message=by_message, follow=False)
    loader = StreamLoader(run, tools, _sink(tools, spec), bounds, spec.streams)
    return Finished() if loader.run_all() else Interrupted()


def _sink(tools: WorkerTools, spec: ExportSpec) -> LoadSink:
    if spec.format == "segments":
        if spec.gzip:
            raise InvalidInputError("gzip", "is for lines of JSON: segments are the broker's own bytes")
        return SegmentSink(tools, spec.destination)
    return TableSink(tools, spec.destination, file_format(spec.format, gzip=spec.gzip), "none")
