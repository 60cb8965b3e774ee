"""The brokers that a worker knows."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidInputError, InvalidSettingError
from coldstream.worker.brokers import BrokerBook


def test_the_environment_and_options_name_brokers_and_options_count() -> None:
    environment = {
        "COLDSTREAM_BROKER": "rabbitmq-stream://a:b@one",
        "COLDSTREAM_AMQP_BROKER": "amqp://a:b@one/%2F",
        "COLDSTREAM_MANAGEMENT": "http://a:b@one:15672",
        "COLDSTREAM_BROKER_EAST": "rabbitmq-stream+tls://a:b@east",
        "COLDSTREAM_AMQP_BROKER_EAST": "amqps://a:b@east",
        "COLDSTREAM_BUCKET": "bucket",
    }
    book = BrokerBook.read(["default=rabbitmq-stream://c:d@two", "west=amqp://west"], environment)
    assert book.stream_uri("default") == "rabbitmq-stream://c:d@two"
    assert book.stream_uri("east") == "rabbitmq-stream+tls://a:b@east"
    assert book.amqp_uri("default") == "amqp://a:b@one/%2F"
    assert book.amqp_uri("east") == "amqps://a:b@east"
    assert book.amqp_uri("west") == "amqp://west"
    assert book.management_url("default") == "http://a:b@one:15672"
    assert book.management_url("west") is None


def test_a_broker_that_is_not_known_is_told_with_those_that_are_and_no_password() -> None:
    book = BrokerBook.read(["east=rabbitmq-stream://user:s3cret@east"], {})
    with pytest.raises(InvalidInputError, match="knows east") as refused:
        book.stream_uri("west")
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in repr(book)
    with pytest.raises(InvalidInputError, match="knows none"):
        book.amqp_uri("east")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "default",
        "default=",
        "=rabbitmq-stream://x",
        "x=kafka://s3cret@y",
        "x=s3cret",
        "x=rabbitmq-stream://:s3cret@",
    ],
)
def test_what_is_no_broker_is_refused_and_never_quoted(text: str) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        BrokerBook.read([text], {})
    assert "s3cret" not in str(refused.value)


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(InvalidSettingError, match="COLDSTREAM_BROKER_EAST"):
        BrokerBook.read([], {"COLDSTREAM_BROKER_EAST": "kafka://east"})
