"""Whether a client is there: silence, sockets that take nothing, and those that take little."""

from __future__ import annotations

from coldstream.gateway.alone.liveness import Liveness, LivenessVerdict


def look(liveness: Liveness, now: float, *, read: int = 0, sent: int = 0, unsent: int = 0, **more: bool) -> str:
    found = liveness.look(
        now,
        read_bytes=read,
        sent_bytes=sent,
        unsent_bytes=unsent,
        is_full=more.get("full", False),
        is_held=more.get("held", False),
        is_used=more.get("used", True),
    )
    return found.name


def test_a_client_is_silent_after_two_heartbeats_and_a_second() -> None:
    liveness = Liveness(600, 300, 0.0, heartbeat_s=10)
    assert look(liveness, 21.0) == "BEAT"
    assert look(liveness, 21.1) == "SILENT"
    assert look(liveness, 21.2, read=1) == "BEAT"
    assert look(liveness, 42.0, read=1) == "BEAT"
    assert look(liveness, 42.3, read=1) == "SILENT"


def test_a_client_that_is_not_read_from_is_not_silent() -> None:
    liveness = Liveness(600, 300, 0.0, heartbeat_s=10)
    for now in range(0, 200, 5):
        assert look(liveness, float(now), sent=now, held=True) != "SILENT"


def test_a_socket_that_takes_nothing_is_stuck_and_one_that_takes_little_is_not() -> None:
    liveness = Liveness(600, 300, 0.0)
    assert look(liveness, 0.0, sent=1000, unsent=1000, full=True) == "NOTHING"
    assert look(liveness, 300.0, sent=1000, unsent=1000, full=True) == "NOTHING"
    assert look(liveness, 300.1, sent=1000, unsent=1000, full=True) == "STUCK"
    liveness = Liveness(600, 300, 0.0)
    for now in range(0, 3000, 100):
        assert look(liveness, float(now), sent=1000, unsent=1000 - now // 100, full=True) == "NOTHING"
    # What is sent beside does not count as taken.
    for now in range(3000, 3400, 100):
        found = look(liveness, float(now), sent=1000 + now, unsent=971 + now, full=True)
    assert found == LivenessVerdict.STUCK.name
