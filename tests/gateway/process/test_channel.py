from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.gateway.cold import ColdRow
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.process.addresses import HostPort
from coldstream.gateway.process.channel import (
    MAX_MESSAGE_BYTES,
    ChildMessage,
    ChildReport,
    channel_pair,
    receive_options,
    send_options,
)
from coldstream.gateway.process.options import AloneSide, GatewayOptions


def test_options_arrive_as_they_were_sent() -> None:
    options = GatewayOptions(HostPort("::1", 1), alone=AloneSide(users=Path("/users"), is_creating=True))
    parent, child = channel_pair()
    with parent, child:
        send_options(parent, options)
        assert receive_options(child) == options


def test_a_parent_that_goes_before_it_says_anything_is_noticed() -> None:
    parent, child = channel_pair()
    with child:
        parent.close()
        with pytest.raises(EOFError):
            receive_options(child)


def test_a_report_arrives_as_it_was_sent() -> None:
    figures = GatewayFigures(connections=3, takeovers_total=4)
    figures.gaps_total["skip"] += 2
    report = ChildReport(figures, 5, (ColdRow("[::1]:1", "/", "заказы", 6, 7),), "S3 is gone")
    assert ChildMessage.from_bytes(ChildMessage(report=report).to_bytes()).report == report


@pytest.mark.parametrize("message", [ChildMessage(is_listening=True), ChildMessage(failed=("--listen", "taken"))])
def test_other_words_arrive_as_they_were_sent(message: ChildMessage) -> None:
    assert ChildMessage.from_bytes(message.to_bytes()) == message


def test_the_largest_report_fits_into_a_message() -> None:
    # 20 rows; names of vhosts and streams are 255 bytes at most, which JSON may write as six characters each.
    row = ColdRow("x" * 60, "\u0001" * 255, "\u0001" * 255, 2**63, 2**63)
    assert len(ChildMessage(report=ChildReport(cold=(row,) * 20)).to_bytes()) < MAX_MESSAGE_BYTES
