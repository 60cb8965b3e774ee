"""Errors, exit codes and help: what all commands have in common."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import coldstream
from coldstream.cli import registry
from coldstream.cli.main import app
from coldstream.cli.options import stream_names
from coldstream.errors import (
    AccessDeniedError,
    BadCrcError,
    ColdstreamError,
    ContradictionError,
    GapError,
    HeldError,
    InvalidSettingError,
    LostRaceError,
    NotDeletedError,
    ObjectNotFoundError,
    OutcomeUnknownError,
    PurgedError,
    StreamDeletedError,
    StreamExistsError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.terminal.exits import ExitCode, advice, exit_code
from tests.cli.conftest import Archive, Cli

PACKAGE = str(Path(coldstream.__path__[0]).parent)
TASKS = {
    "Archive streams": ("agent", "announce", "recover"),
    "Look up and read": ("streams", "describe", "read", "resolve", "inspect"),
    "See and steer it in a browser": ("console",),
    "Let stock clients read the archive": ("gateway",),
    "Use streams without a broker": ("serve",),
    "Shard streams": ("shards",),
    "Run jobs": ("worker", "jobs"),
    "Maintain the archive": ("compact", "replay", "access"),
    "Bound the archive, and delete from it": (
        "truncate",
        "delete",
        "undelete",
        "erase",
        "sweep",
        "restore",
        "policy",
        "retention",
        "hold",
    ),
    "Check the archive, and mend it": (
        "doctor",
        "scrub",
        "garbage",
        "history",
        "rebuild",
        "quarantine",
        "dead-letters",
    ),
    "Try it": ("up",),
}
COMMANDS = tuple(command for commands in TASKS.values() for command in commands)
NOBODY = 65534
RESOLVER = ("--resolver", "http://127.0.0.1:9")


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[None]:
    """Be somebody who may not read everything."""
    if os.geteuid() != 0:
        yield
        return
    for directory in (tmp_path, *tmp_path.parents[:3]):
        directory.chmod(0o755)
    os.chown(tmp_path, NOBODY, -1)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidSettingError("X", "is not set"), 2),
        (StreamNotFoundError("no stream"), 3),
        (ObjectNotFoundError("key"), 3),
        (GapError("orders", 5, 10), 4),
        (BadCrcError("file", 8, "CRC"), 5),
        (ContradictionError("file", 0, "an epoch that falls"), 5),
        (UnavailableError("S3"), 6),
        (AccessDeniedError("S3"), 6),
        (LostRaceError("head"), 6),
        (OutcomeUnknownError("put"), 6),
        (HeldError("17", 0, 9, "case"), 7),
        (StreamDeletedError("stream", 0), 7),
        (PurgedError("stream"), 7),
        (NotDeletedError("stream"), 7),
        (ColdstreamError("other"), 1),
    ],
)
def test_every_error_has_its_exit_code(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: ColdstreamError, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("coldstream.read.client.ResolverClient.streams", fail)
    done = cli("streams", *RESOLVER)
    assert done.code == code == exit_code(error)
    assert done.out == ""
    assert done.err.startswith(f"coldstream: {error}")
    assert done.err.count("\n") == 1


def test_the_advice_for_a_gap_is_where_to_go_on() -> None:
    assert advice(GapError("orders", 5, 10)) == "continue after the gap, from offset 10"


def test_advice_for_denied_access_is_about_credentials() -> None:
    assert advice(StreamExistsError("orders")) == "`coldstream delete` frees the name"
    assert "credentials" in (advice(AccessDeniedError("S3")) or "")


def test_an_unexpected_error_is_one_line_and_a_traceback_only_with_debug(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("thing")

    monkeypatch.setattr("coldstream.read.client.ResolverClient.streams", fail)
    done = cli("streams", *RESOLVER)
    assert done.code == ExitCode.UNEXPECTED
    assert done.err == "coldstream: unexpected: KeyError: 'thing' (this is a bug; --debug shows where)\n"
    assert "Traceback" in cli("--debug", "streams", *RESOLVER).err


def test_ctrl_c_ends_a_command_with_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("coldstream.read.client.ResolverClient.streams", interrupt)
    done = cli("streams", *RESOLVER)
    assert (done.code, done.err) == (130, "")


def test_control_characters_of_an_error_do_not_reach_the_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StreamNotFoundError("no stream \x1b[2J")

    monkeypatch.setattr("coldstream.read.client.ResolverClient.streams", fail)
    assert "\\x1b[2J" in cli("streams", *RESOLVER).err


@pytest.mark.parametrize(
    "arguments",
    [("streams",), ("describe", *RESOLVER), ("read", *RESOLVER), ("inspect", "no-such-file"), ("nothing",)],
)
def test_wrong_usage_ends_with_2_and_says_how_it_goes(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.delenv("COLDSTREAM_RESOLVER_URL", raising=False)
    done = cli(*arguments)
    assert done.code == 2
    assert "Usage: coldstream" in done.err


@pytest.mark.parametrize("url", ["ftp://example.org", "localhost:8380", "http://[::1", "http://127.0.0.1:99999"])
def test_an_address_that_cannot_be_a_resolver_is_refused(cli: Cli, url: str) -> None:
    done = cli("streams", "--resolver", url)
    assert done.code == 2
    assert "is not an http or https URL" in done.err


def test_a_disk_that_is_full_is_reported_and_is_no_bug(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("coldstream.read.client.ResolverClient.streams", fail)
    done = cli("streams", *RESOLVER)
    assert (done.code, done.err) == (1, "coldstream: [Errno 28] No space left on device\n")


def test_the_version_is_reported_wherever_it_is_asked_for(cli: Cli) -> None:
    for arguments in (("--version",), ("streams", "--version"), ("--debug", "read", "orders", "--version")):
        done = cli(*arguments)
        assert (done.code, done.out) == (0, f"coldstream {coldstream.__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--debug", "streams", *RESOLVER, "-o", "json"),
        ("streams", *RESOLVER, "-o", "json", "--debug"),
        ("-o", "json", *RESOLVER, "streams", "--debug"),
        ("--output=json", *RESOLVER, "--debug", "streams"),
    ],
)
def test_options_may_be_before_the_command_and_after_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise UnavailableError("S3")

    monkeypatch.setattr("coldstream.read.client.ResolverClient.streams", fail)
    done = cli(*arguments)
    assert done.code == 6
    assert "Traceback" in done.err


def test_an_error_of_the_agents_shows_where_it_comes_from_too(cli: Cli) -> None:
    done = cli("agent", "status", "--url", "ftp://x", "--debug")
    assert done.code == 2
    assert "Traceback" in done.err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("coldstream re", {"resolve", "read", "recover", "replay", "rebuild", "restore", "retention"}),
        ("coldstream compact --old", {"--older-than"}),
    ],
)
def test_a_shell_completes_commands_and_options(words: str, found: set[str]) -> None:
    environment = {
        "PYTHONPATH": PACKAGE,
        "PATH": os.environ["PATH"],
        "_COLDSTREAM_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "coldstream"], capture_output=True, text=True, check=True, env=environment
    )
    assert (set(done.stdout.split()), done.stderr) == (found, "")


NO_SHELL_AROUND = ("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
"""Of what the tests were started from, Typer would take the shell that it finds there."""


def test_completion_is_shown_for_installing_it_by_hand(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*NO_SHELL_AROUND)
    done = cli("--show-completion", "bash")
    assert done.code == 0
    assert "complete -o default -F _coldstream_completion coldstream" in done.out


def test_completion_is_installed_for_the_shell_that_is_named(tmp_path: Path) -> None:
    environment = dict([NO_SHELL_AROUND], PYTHONPATH=PACKAGE, PATH=os.environ["PATH"], HOME=str(tmp_path))
    command = [sys.executable, "-m", "coldstream", "--install-completion", "bash"]
    subprocess.run(command, capture_output=True, check=True, env=environment)
    (line,) = (tmp_path / ".bashrc").read_text().split("\n")[-2:-1]
    asked = f"{line}\ncomplete -p coldstream"
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "complete -o default -F _coldstream_completion coldstream\n"


def test_a_shell_completes_names_of_streams_where_the_resolver_tells_them(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stream_names("or") == ["orders"]
    monkeypatch.setenv("COLDSTREAM_RESOLVER_URL", "nonsense")
    assert stream_names("or") == []


def test_a_resolver_that_hangs_does_not_hold_up_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.cli.options.COMPLETE_WITHIN_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("COLDSTREAM_RESOLVER_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert stream_names("or") == []


def test_an_extra_that_is_not_installed_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'rstream'", name="rstream.schema")

    monkeypatch.setattr("coldstream.read.client.ResolverClient.streams", fail)
    done = cli("streams", *RESOLVER)
    assert done.code == 2
    assert done.err == (
        "coldstream: this needs the package rstream, which comes with: pip install 'coldstream[consumer]'\n"
    )


def test_a_command_that_needs_more_names_the_extra_that_brings_it_all(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'pika'", name="pika")

    monkeypatch.setattr("coldstream.cli.shards_show.select_maps", fail)
    done = cli("shards", "list")
    assert done.code == 2
    assert done.err.endswith("pip install 'coldstream[shards]'\n")


def test_what_may_not_be_read_is_reported_with_who_may(cli: Cli, tmp_path: Path, unprivileged: None) -> None:
    (tmp_path / "stream").mkdir(mode=0)
    for arguments in (("announce", tmp_path / "stream"), ("agent", "--data", tmp_path / "stream")):
        done = cli(*arguments)
        assert done.code == 1
        assert "Permission denied" in done.err
        assert "sudo -u rabbitmq" in done.err


def test_help_lists_the_commands_by_task_and_the_exit_codes(cli: Cli) -> None:
    done = cli("--help")
    assert done.code == 0
    for task, commands in TASKS.items():
        lines = done.out.partition(f"{task}:\n")[2].partition("\n\n")[0].splitlines()
        assert tuple(line.split()[0] for line in lines) == commands
    assert " ".join(done.out.split()).endswith(
        "7 refused: held, deleted, removed, still changing, or a job's state; 130 interrupted."
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_the_exit_codes(cli: Cli, command: str) -> None:
    done = cli(command, "--help")
    assert done.code == 0
    assert f"Usage: coldstream {command} " in done.out
    assert "Exit codes: 0 done;" in done.out


def test_the_help_of_the_program_has_each_commands_own_line() -> None:
    program = typer.main.get_command(app)
    assert list(program.commands) == list(registry.COMMANDS)
    lines = {name: command.get_short_help_str(200) for name, command in program.commands.items()}
    assert lines == {name: entry.help for name, entry in registry.COMMANDS.items()}


def test_help_does_not_wait_for_what_only_commands_need() -> None:
    heavy = ("asyncio", "boto3", "botocore", "moto", "urllib3", "aws_lambda_powertools", "coldstream.cli.read")
    code = (
        "import sys, contextlib, coldstream.cli.main as main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):\n"
        "    main.app(['--help'])\n"
        f"print(set({heavy}) & set(sys.modules))"
    )
    environment = {"PYTHONPATH": PACKAGE, "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "set()\n"


def _commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield (*words, name), command
        if hasattr(command, "commands"):
            yield from _commands(command, (*words, name))


ALL_COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("group", [(), *(words for words, one in ALL_COMMANDS.items() if hasattr(one, "commands"))])
def test_no_line_of_a_list_of_commands_is_cut_off(cli: Cli, group: tuple[str, ...]) -> None:
    assert [line for line in cli(*group, "--help").out.splitlines()[1:] if line.endswith("...")] == []


@pytest.mark.parametrize("words", [words for words, one in ALL_COMMANDS.items() if not hasattr(one, "commands")])
def test_the_help_of_each_command_has_an_example(words: tuple[str, ...]) -> None:
    assert f"`coldstream {' '.join(words)}" in " ".join((ALL_COMMANDS[words].help or "").split())
