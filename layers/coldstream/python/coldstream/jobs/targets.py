"""Where a load job sends: a stream, a super stream or an exchange of a broker, or a table of files.

A broker is named, and workers know its address and password: the manifest table holds neither.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from coldstream.jobs.spec_fields import ShortName, SpecModel, StreamName, Text

BrokerName = Annotated[ShortName, Field(description="The broker, by the name that workers know it by")]


class ToStream(SpecModel):
    """A stream of a broker. Each message comes once: the broker tells what it has."""

    type: Literal["stream"]
    broker: BrokerName = "default"
    vhost: Annotated[StreamName | None, Field(description="Its vhost; else that of the loaded streams")] = None
    name: StreamName


class ToSuperStream(SpecModel):
    """A super stream of a broker: the routing key of a message chooses its partition. Each message comes once."""

    type: Literal["super_stream"]
    broker: BrokerName = "default"
    vhost: Annotated[StreamName | None, Field(description="Its vhost; else that of the loaded streams")] = None
    name: StreamName
    routing_key: Annotated[
        Text | None, Field(description="Where a message has its key; else properties.message_id")
    ] = None


class ToExchange(SpecModel):
    """An exchange of a broker, by AMQP 0.9.1. After a failure, what was not confirmed is sent again."""

    type: Literal["exchange"]
    broker: BrokerName = "default"
    name: Annotated[str, Field(max_length=255, description='The exchange; "" is the default one')]
    routing_key: Annotated[
        Text | None, Field(description="Where a message has its key; else the one it was published with")
    ] = None
    default_key: Annotated[Text | None, Field(description="The key of messages that have none")] = None
    allow_unroutable: Annotated[bool, Field(description="Let the broker drop messages that no queue takes")] = False


class ToTable(SpecModel):
    """A table: files of Parquet or of lines of JSON. Each message is in it once."""

    type: Literal["table"]
    path: Annotated[Text, Field(min_length=1, description="A directory of the worker, or s3://BUCKET/PREFIX")]
    format: Literal["parquet", "jsonl"] = "parquet"
    gzip: Annotated[bool, Field(description="Compress lines of JSON")] = False
    partition_by: Annotated[Text, Field(description="Some of stream, date and hour, with commas between, or none")] = (
        "stream,date"
    )


Target = Annotated[ToStream | ToSuperStream | ToExchange | ToTable, Field(discriminator="type")]
TARGET_TYPES = ("stream", "super_stream", "exchange", "table")
