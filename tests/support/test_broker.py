"""The private broker keeps to itself, does what tests ask of it, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rstream import CompressionType

from coldstream.agent.proof.management import ManagementClient
from tests.support import broker as module
from tests.support import releases
from tests.support.broker import Broker, BrokerError
from tests.support.releases import RABBITMQ_4_3
from tests.support.streams import SubBatch

LOOPBACK = {"0100007F", "00000000000000000000000001000000"}  # 127.0.0.1 and ::1, as /proc/net writes them
LISTENING = "0A"


def listeners(process_id: int) -> dict[int, str]:
    """Every TCP port that a process listens on, and at which address."""
    sockets = set()
    for link in Path(f"/proc/{process_id}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            sockets.add(str(link.readlink()))
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == LISTENING and f"socket:[{rest[5]}]" in sockets:
                address, port = local.split(":")
                found[int(port, 16)] = address
    return found


def is_running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def happens(condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds, for 30 s at most."""
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_listens_on_its_own_ports_of_loopback_only(any_broker):
    found: dict[int, str] = {}
    for process_id in any_broker.process_ids:
        found |= listeners(process_id)
    assert sorted(found) == sorted(any_broker.ports)
    assert set(found.values()) <= LOOPBACK


def test_each_release_is_what_it_says_and_its_segments_are_seen_from_outside(any_broker):
    if any_broker.release.suite is not None:
        assert any_broker.ctl("version").startswith(f"{any_broker.release.version}.")
    with any_broker.connect() as streams:
        streams.create_stream("seen", max_segment_bytes=100_000)
        streams.publish("seen", [b"from outside"])
    segment = any_broker.stream_directory("seen") / f"{0:020}.segment"
    assert happens(lambda: b"from outside" in segment.read_bytes())


def test_nothing_of_a_newer_release_stays_mounted(any_broker):
    assert str(any_broker.release.directory) not in Path("/proc/self/mountinfo").read_text()


def test_what_is_published_is_consumed_in_the_same_order(broker):
    batches = [SubBatch([b"a", b"", b"c" * 1000], compression) for compression in CompressionType]
    entries = [b"first", *batches, b"", *[b"%d" % number for number in range(3000)], b"x" * 900_000]
    with broker.connect() as streams:
        streams.create_stream("mixed", max_segment_bytes=100_000)
        assert streams.publish("mixed", entries) == 3018
        consumed = streams.read("mixed", 3018)
    published = [
        message for entry in entries for message in (entry.messages if isinstance(entry, SubBatch) else [entry])
    ]
    assert consumed == list(enumerate(published))


def test_names_may_have_any_characters(broker):
    vhost, stream = "größe/注文", "a b/ü_%"
    broker.add_vhost(vhost)
    with broker.connect(vhost) as streams:
        streams.create_stream(stream, max_segment_bytes=100_000)
        streams.create_stream("a_b", max_segment_bytes=100_000)
        streams.create_stream("a/b", max_segment_bytes=100_000)
        streams.publish(stream, [b"message"], publisher="größe")
        assert [message for _, message in streams.read(stream, 1)] == [b"message"]
    directories = {broker.stream_directory(name, vhost) for name in (stream, "a_b", "a/b")}
    assert len(directories) == 3
    assert all(directory.is_dir() for directory in directories)


def test_a_named_publisher_goes_on_where_it_stopped(broker):
    with broker.connect() as streams:
        streams.create_stream("named", max_segment_bytes=100_000)
        assert streams.publish("named", [b"1", b"2"], publisher="me") == 2
        assert streams.publish("named", [b"3"], publisher="me") == 1
        streams.store_offset("named", "reader", 1)
        streams.publish("named", [b"4"])
        assert [message for _, message in streams.read("named", 4)] == [b"1", b"2", b"3", b"4"]


def test_retention_deletes_the_oldest_segments(broker):
    with broker.connect() as streams:
        streams.create_stream("short", max_segment_bytes=100_000, max_length_bytes=300_000)
        for _ in range(20):
            streams.publish("short", [bytes(1000)] * 100)
    directory = broker.stream_directory("short")
    assert happens(lambda: 2 <= len(list(directory.glob("*.segment"))) <= 4)
    assert not (directory / f"{0:020}.segment").exists()


def test_nothing_is_left_when_its_context_ends(broker, broker_release):
    another = Broker(release=broker_release)
    with contextlib.suppress(KeyboardInterrupt), another:
        directory = another.data_directory.parents[2]
        process_ids = another.process_ids
        assert directory.is_dir()
        assert all(map(is_running, process_ids))
        assert set(another.ports).isdisjoint(broker.ports)
        raise KeyboardInterrupt
    assert not directory.exists()
    assert not any(map(is_running, process_ids))
    assert not any(map(accepts, another.ports))


def test_one_that_was_killed_starts_again_with_what_it_had(broker):
    with Broker(management=True) as victim:
        ports = victim.ports
        with victim.connect() as streams:
            streams.create_stream("kept", max_segment_bytes=100_000)
            streams.publish("kept", [b"1", b"2"])
        time.sleep(1)
        victim.kill()
        assert not any(map(accepts, set(ports) - {victim._epmd.port}))
        victim.start()
        assert victim.ports == ports
        with victim.connect() as streams:
            assert happens(lambda: streams.ports("kept")[0] == victim.stream_port)
            assert [message for _, message in streams.read("kept", 2)] == [b"1", b"2"]
        assert [stream.name for stream in ManagementClient(victim.management_url).streams()] == ["kept"]
        victim.stop()
        assert not accepts(victim.stream_port)


def test_a_paused_node_says_nothing_until_it_is_resumed(broker):
    assert broker.is_running
    broker.pause()
    try:
        assert not broker.is_running
        with socket.create_connection((broker.host, broker.amqp_port), timeout=1) as asking:
            asking.sendall(b"AMQP\x00\x00\x09\x01")
            with pytest.raises(TimeoutError):
                asking.recv(1)
    finally:
        broker.resume()
    with broker.connect() as streams:
        streams.create_stream("after a pause", max_segment_bytes=100_000)


@pytest.mark.skipif(sys.platform != "linux", reason="needs setpriv")
def test_it_ends_when_the_process_that_started_it_is_killed(broker, tmp_path):
    script = (
        "import time\n"
        "from tests.support.broker import Broker\n"
        "with Broker() as broker:\n"
        "    print(*broker.process_ids, flush=True)\n"
        "    time.sleep(600)\n"
    )
    root = Path(module.__file__).parents[2]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    starter = subprocess.Popen(
        [sys.executable, "-c", script], cwd=root, env=environment, stdout=subprocess.PIPE, text=True
    )
    with starter:
        process_ids = [int(process_id) for process_id in starter.stdout.readline().split()]
        starter.send_signal(signal.SIGKILL)
    assert len(process_ids) == 2
    assert happens(lambda: not any(map(is_running, process_ids)))


def test_a_newer_one_that_is_missing_is_said_with_its_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("COLDSTREAM_BROKERS", str(tmp_path))
    with (
        pytest.raises(BrokerError, match=r"RabbitMQ 4\.3 .*scripts/install-newer-brokers"),
        Broker(release=RABBITMQ_4_3),
    ):
        pass


def test_a_missing_rabbitmq_is_said_with_its_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr(releases, "DEBIAN_SCRIPTS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert module.find_rabbitmq() is None
    with pytest.raises(BrokerError, match="apt-get install rabbitmq-server"), Broker():
        pass
