"""`coldstream gateway`: what its options mean, its status, and lines for its file of users."""

from __future__ import annotations

import io
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from threading import Thread

import pytest

from coldstream.cli import gateway_run
from coldstream.gateway.alone.password_file import PasswordFile
from coldstream.gateway.gap_rules import GapAction
from coldstream.gateway.process.addresses import HostPort, NodeAddress
from coldstream.gateway.process.channel import ChildReport
from coldstream.gateway.process.cores import usable_cores
from coldstream.gateway.process.options import AloneSide, BrokerSide, GatewayOptions, ServerTls
from coldstream.gateway.process.status import GatewayStatus, ProcessStatus
from coldstream.terminal.exits import ExitCode
from coldstream.units import MIB
from coldstream.web.small_http import HttpAnswer, SmallHttpServer
from tests.cli.conftest import Cli
from tests.support.gateway_status import gateway_status


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[GatewayOptions]:
    """Have what would run: its options."""
    found: list[GatewayOptions] = []
    monkeypatch.setattr(gateway_run, "run_gateway", found.append)
    return found


def test_without_options_it_is_in_front_of_the_broker_of_this_machine(cli: Cli, ran: list[GatewayOptions]) -> None:
    assert cli("gateway").code == 0
    (options,) = ran
    assert options == GatewayOptions(
        HostPort("0.0.0.0", 5552),
        BrokerSide((HostPort("localhost", 5552),)),
        processes=usable_cores(),
        admin=HostPort("127.0.0.1", 9480),
    )


def test_every_option_arrives_where_it_belongs(cli: Cli, ran: list[GatewayOptions], tmp_path: Path) -> None:
    done = cli(
        "gateway",
        *("--broker", "rabbit-1", "--broker", "[::1]:5553", "--broker-tls", "--broker-ca", tmp_path / "ca.pem"),
        *("--broker-name", "rabbit", "--listen", "[::]:5551", "--certificate", tmp_path / "c", "--private-key", "key"),
        *("--node", "rabbit-1:5552=gw-1:5551", "--on-gap", "skip", "--on-gap", "orders*=error", "--memory", "64MiB"),
        *("--processes", "2", "--max-connections", "7", "--drain", "1500ms", "--admin", "9000", "--log-level", "debug"),
    )
    assert (done.code, done.err) == (0, "")
    (options,) = ran
    assert options.broker == BrokerSide(
        (HostPort("rabbit-1", 5552), HostPort("::1", 5553)), is_tls=True, ca=tmp_path / "ca.pem", server_name="rabbit"
    )
    assert options.listen == HostPort("::", 5551)
    assert options.tls == ServerTls(tmp_path / "c", Path("key").absolute())
    assert options.nodes == (NodeAddress(HostPort("rabbit-1", 5552), HostPort("gw-1", 5551)),)
    assert (options.gaps.action("orders-1"), options.gaps.action("x")) == (GapAction.ERROR, GapAction.SKIP)
    assert (options.memory_bytes, options.processes, options.max_connections) == (64 * MIB, 2, 7)
    assert (options.drain_s, options.admin, options.log_level) == (1.5, HostPort("127.0.0.1", 9000), logging.DEBUG)


def test_archive_only_needs_no_broker_but_users(cli: Cli, ran: list[GatewayOptions], tmp_path: Path) -> None:
    users, permissions = tmp_path / "users", tmp_path / "permissions"
    done = cli(
        *("gateway", "--archive-only", "--users", users, "--permissions", permissions, "--create"),
        *("--super-stream", "invoices*", "--advertise", "archive.example.com:5552", "--admin", "-"),
    )
    assert (done.code, done.err) == (0, "")
    (options,) = ran
    assert options.broker is None
    assert options.alone == AloneSide(users, (), permissions, is_creating=True, super_streams=("invoices*",))
    assert (options.advertise, options.admin) == (HostPort("archive.example.com", 5552), None)


def test_the_command_that_knows_users_is_split_as_a_shell_does(cli: Cli, ran: list[GatewayOptions]) -> None:
    assert cli("gateway", "--archive-only", "--auth-command", "check 'a b' c").code == 0
    (options,) = ran
    assert options.alone == AloneSide(auth_command=("check", "a b", "c"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--archive-only",), "--users: or --auth-command is needed"),
        (("--archive-only", "--users", "x", "--broker", "b"), "--broker: and --archive-only exclude each other"),
        (("--archive-only", "--users", "x", "--broker-tls"), "--broker-tls: and --archive-only exclude each other"),
        (("--archive-only", "--auth-command", "'"), "--auth-command: No closing quotation"),
        (("--users", "x"), "--users: is for --archive-only"),
        (("--create",), "--create: is for --archive-only"),
        (("--super-stream", "x"), "--super-stream: is for --archive-only"),
        (("--certificate", "x"), "--certificate: and --private-key are given together"),
        (("--broker-ca", "x"), "--broker-tls: is missing"),
        (("--broker", "b:x"), "--broker: 'b:x' is not HOST:PORT"),
        (("--listen", "5552"), "--listen: '5552' is not HOST:PORT"),
        (("--admin", "nowhere"), "--admin: 'nowhere' is not HOST:PORT"),
        (("--node", "a:1"), "--node: 'a:1' is not BROKER:PORT=GATEWAY:PORT"),
        (("--on-gap", "stop"), "--on-gap: 'stop' is not error, skip"),
        (("--broker", "b:0"), "--broker: b:0 has no port"),
        (("--broker", "0.0.0.0:5552"), "--broker: 0.0.0.0:5552 is no address"),
        (("--advertise", "b:0"), "--advertise: b:0 has no port"),
        (("--advertise", "[::]:5552"), "--advertise: [::]:5552 is no address"),
        (("--node", "a:1=0.0.0.0:2"), "--node: 0.0.0.0:2 is no address"),
        (("--memory", "lots"), "--memory"),
        (("--memory", "15MiB", "--processes", "1"), "--memory: is less than 16MiB"),
        (("--drain", "soon"), "--drain"),
    ],
)
def test_what_cannot_be_ends_with_2_and_names_the_option(
    cli: Cli, ran: list[GatewayOptions], arguments: tuple[str, ...], said: str
) -> None:
    done = cli("gateway", *arguments)
    assert (done.code, ran) == (ExitCode.USAGE, [])
    assert said in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("cores", "arguments", "processes"),
    [
        (64, (), 16),
        (64, ("--memory", "2GiB"), 64),
        (64, ("--max-connections", "3"), 3),
        (64, ("--memory", "1MiB", "--processes", "1"), None),
        (8, (), 8),
        (8, ("--archive-only", "--users", "x", "--create"), 1),
    ],
)
def test_a_machine_of_many_cores_needs_no_option(  # noqa: PLR0917  three are fixtures
    cli: Cli,
    ran: list[GatewayOptions],
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    arguments: tuple[str, ...],
    processes: int | None,
) -> None:
    monkeypatch.setattr("coldstream.gateway.process.cores.usable_cores", lambda: cores)
    done = cli("gateway", *arguments)
    assert done.code == (ExitCode.USAGE if processes is None else 0), done.err
    assert [options.processes for options in ran] == ([] if processes is None else [processes])


def test_a_broker_at_the_address_where_it_listens_itself_is_refused(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = cli("gateway", "--listen", f"0.0.0.0:{port}", "--broker", f"localhost:{port}", "--admin", "-")
    assert (done.code, done.out) == (ExitCode.USAGE, "")
    assert f"--broker: localhost:{port} is where this gateway listens" in done.err


def test_clients_that_are_told_the_brokers_own_address_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    one, two, other = (HostPort(host, 5552) for host in ("rabbit-1", "rabbit-2", "streams"))
    broker = BrokerSide((one, two))
    gateway_run._warn_of_same_addresses(GatewayOptions(one, broker, advertise=other), broker)
    gateway_run._warn_of_same_addresses(GatewayOptions(one, broker, nodes=(NodeAddress(one, other),)), broker)
    assert caplog.records == []
    gateway_run._warn_of_same_addresses(GatewayOptions(one, broker, advertise=two), broker)
    nodes = (NodeAddress(one, other), NodeAddress(two, two))
    gateway_run._warn_of_same_addresses(GatewayOptions(one, broker, nodes=nodes), broker)
    assert [record.__dict__["address"] for record in caplog.records] == [str(two)] * 2


def test_what_nobody_can_read_is_no_reason_not_to_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", buffering=1) as full:
        monkeypatch.setattr("sys.stdout", full)
        gateway_run._say("listening")
        monkeypatch.undo()
        with suppress(OSError):
            full.close()


def test_an_address_that_is_taken_ends_with_2_and_says_so(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = cli("gateway", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--admin", "-")
    assert done.code == ExitCode.USAGE
    assert "Address already in use" in done.err


@contextmanager
def answering(status: GatewayStatus) -> Iterator[str]:
    """Have an address that answers with a status."""
    server = SmallHttpServer(
        "127.0.0.1", 0, lambda path, _: HttpAnswer(HTTPStatus.OK, "application/json", status.to_json())
    )
    thread = Thread(target=server.serve_forever, args=(0.05,), name="admin")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_status_is_a_table_of_processes_and_one_of_cold_subscriptions(cli: Cli) -> None:
    with answering(gateway_status()) as url:
        done = cli("gateway", "status", "--url", url)
    assert done.code == 0
    processes, cold = done.out.split("\n\n")
    assert [line.split()[:6] for line in processes.splitlines()] == [
        ["process", "pid", "state", "connections", "cold", "live"],
        ["0", "17", "serves", "3", "2", "1"],
        ["1", "18", "serves", "0", "0", "0"],
    ]
    assert "8.0 MiB of 128.0 MiB" in processes
    assert [line.split() for line in cold.splitlines()] == [
        ["client", "vhost", "stream", "offset", "behind"],
        ["10.0.0.7:40000", "/", "orders", "300", "700"],
        ["10.0.0.8:40001", "/", "заказы", "5", "7"],
    ]
    assert "3 connections, 2 subscriptions read the archive, 1 the broker; 14 have begun in the archive" in done.err
    assert "coldstream 1.2.3, proxy, at 0.0.0.0:5552" in done.err


def test_a_gateway_that_is_not_ready_says_why_and_ends_with_6(cli: Cli) -> None:
    with answering(gateway_status(problems=("the broker doesn't answer: gone",), processes=())) as url:
        done = cli("gateway", "status", "--url", url)
    assert done.code == ExitCode.UNAVAILABLE
    assert "problem: the broker doesn't answer: gone" in done.err


def test_for_programs_the_status_is_json(cli: Cli) -> None:
    with answering(gateway_status()) as url:
        done = cli("gateway", "status", "--url", url, "--output", "json")
    (found,) = done.json
    assert (found["ready"], found["totals"]["takeovers_total"]) == (True, 14)
    assert found == json.loads(gateway_status().to_json())


def test_an_archive_that_does_not_answer_is_shown_also_in_front_of_a_broker(cli: Cli) -> None:
    reports = [ChildReport(archive_problem=problem) for problem in ("region: none is set", None, "region: none is set")]
    processes = tuple(ProcessStatus(number, 17, True, 0.4, report) for number, report in enumerate(reports))
    with answering(gateway_status(processes=processes)) as url:
        done = cli("gateway", "status", "--url", url)
    assert done.code == 0
    assert done.err.count("warning: the archive doesn't answer: region: none is set\n") == 1


def test_where_no_gateway_is_the_status_says_what_to_do(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    done = cli("gateway", "status", "--url", url)
    assert done.code == ExitCode.UNAVAILABLE
    assert "is a gateway running?" in done.err
    assert cli("gateway", "status", "--url", "ftp://x").code == ExitCode.USAGE


def test_a_hashed_password_is_a_line_of_the_file_of_users(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim заказ\nnot this\n"))
    done = cli("gateway", "hash-password", "ada")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("ada:scrypt$")
    assert "geheim" not in done.out
    path = tmp_path / "users"
    path.write_text(done.out)
    users = PasswordFile(path)
    assert users.check("ada", "geheim заказ")
    assert not users.check("ada", "geheim")


@pytest.mark.parametrize(
    ("user", "password"), [("", "x"), ("a:b", "x"), (" a", "x"), ("a\nb", "x"), ("#a", "x"), ("a", "")]
)
def test_what_the_file_of_users_cannot_hold_is_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, user: str, password: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
    done = cli("gateway", "hash-password", user)
    assert (done.code, done.out) == (ExitCode.USAGE, "")
