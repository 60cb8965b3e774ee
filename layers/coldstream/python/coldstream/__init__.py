"""Bottomless retention on S3 for RabbitMQ Streams."""

__version__ = "0.1.0"
