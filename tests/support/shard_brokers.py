"""Brokers to shard on: with the plugins for it, and asked as `coldstream shards` asks."""

from __future__ import annotations

from coldstream.shards.management_broker import ManagementShardBroker
from tests.support.broker import Broker

PLUGINS = ("rabbitmq_stream_management",)


def amqp_uri(broker: Broker) -> str:
    return f"amqp://guest:guest@{broker.host}:{broker.amqp_port}/%2F"


def shard_broker(broker: Broker, vhost: str = "/") -> ManagementShardBroker:
    return ManagementShardBroker(broker.management_url, amqp_uri(broker), broker.stream_uri, vhost)
