"""The API as a whole: its routes, and its OpenAPI document. `make generate` writes the document."""

from __future__ import annotations

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver

from coldstream.api import job_routes, stream_routes
from coldstream.api.job_document import with_job_bodies
from coldstream.api.serving import report_error
from coldstream.runtime.openapi_document import document_of, text_of
from coldstream.runtime.strict_api import make_strict

API_VERSION = "1.0"

PATHS = {
    "/v1/jobs": "GET, POST",
    "/v1/jobs/preview": "POST",
    "/v1/jobs/{job_id}": "GET, PATCH, DELETE",
    "/v1/jobs/{job_id}/pause": "POST",
    "/v1/jobs/{job_id}/resume": "POST",
    "/v1/jobs/{job_id}/cancel": "POST",
    "/v1/jobs/{job_id}/log": "GET",
    "/v1/streams": "GET",
    "/v1/stream": "GET",
    "/v1/stream/timeline": "GET",
    "/v1/stream/messages": "GET",
    "/v1/stream/search": "GET",
    "/v1/stream/search/forecast": "GET",
}
"""The paths, each with its methods."""

app = APIGatewayHttpResolver(enable_validation=True)
app.include_router(job_routes.router)
app.include_router(stream_routes.router)
make_strict(app, PATHS, report_error)


def openapi() -> str:
    """Return the OpenAPI document, docs/openapi-jobs.json."""
    document = document_of(
        app,
        title="coldstream jobs and streams",
        version=API_VERSION,
        description="Jobs on an archive of RabbitMQ streams, and views of what is archived. A job reaches every stream"
        " of the archive. A parameter or a field that is not described here is an error.",
    )
    return text_of(with_job_bodies(document))
