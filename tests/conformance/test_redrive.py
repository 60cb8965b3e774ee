"""Dead letters, redriven as docs/operations.md says: those of the queue, and those that never reached it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from coldstream.archive.envelope import DETAIL_TYPE, SOURCE
from coldstream.archive.events import detail_of
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.store.table import DynamoTable
from coldstream.units import Offset
from tests.support.deployed import DeployedArchive
from tests.support.segments import write_stream

STREAM = StreamId("/", "redriven", incarnation("__redriven_1763700000000000000"))
WITHIN_S = 60


def test_a_letter_of_eventbridges_is_archived_once_it_is_moved_to_the_upload_queue(
    archive: DeployedArchive, sqs: Any, tmp_path: Path
) -> None:
    settings = archive.stack.environment
    write_stream(tmp_path, chunks=250)
    segment = stage(find_rolled(tmp_path)[0], STREAM, archive.objects, archive.keys)
    letter = {"version": "0", "id": "1", "source": SOURCE, "detail-type": DETAIL_TYPE, "resources": []}
    body = json.dumps({**letter, "detail": json.loads(detail_of(segment))})
    sqs.purge_queue(QueueUrl=settings["COLDSTREAM_DEAD_LETTER_QUEUE"])  # of other tests' letters
    sqs.send_message(QueueUrl=settings["COLDSTREAM_DEAD_LETTER_QUEUE"], MessageBody=body)
    sqs.start_message_move_task(
        SourceArn=settings["COLDSTREAM_DEAD_LETTER_QUEUE_ARN"], DestinationArn=settings["COLDSTREAM_UPLOAD_QUEUE_ARN"]
    )
    deadline = time.monotonic() + WITHIN_S
    while archive.stack.dead_letters():  # the task moves them in its own time
        assert time.monotonic() < deadline
        time.sleep(0.2)
    archive.settle()
    page = DynamoTable(archive.table_name).log_from_offset(STREAM.incarnation, Offset(0), 100)
    assert page.entries[-1].next_offset == segment.next_offset
