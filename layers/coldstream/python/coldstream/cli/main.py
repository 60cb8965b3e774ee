"""The command `coldstream`: its commands, grouped by task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import coldstream
from coldstream.cli import access, dead_letters, hold, jobs, policy, quarantine, retention, shards, shards_show
from coldstream.cli.agent import agent
from coldstream.cli.agent_status import status
from coldstream.cli.announce import announce
from coldstream.cli.compact import compact
from coldstream.cli.console import console
from coldstream.cli.delete import delete, undelete
from coldstream.cli.doctor import doctor
from coldstream.cli.erase import erase
from coldstream.cli.garbage import garbage
from coldstream.cli.gateway import gateway
from coldstream.cli.gateway_password import hash_password
from coldstream.cli.gateway_status import status as gateway_status
from coldstream.cli.group import DEBUG, PROGRAM, Command, CommandGroup
from coldstream.cli.history import history
from coldstream.cli.inspect_file import inspect_file
from coldstream.cli.jobs_create import create as create_job
from coldstream.cli.read import read
from coldstream.cli.rebuild import rebuild
from coldstream.cli.replay import replay
from coldstream.cli.resolve import resolve
from coldstream.cli.restore import restore
from coldstream.cli.scrub import scrub
from coldstream.cli.serve import serve
from coldstream.cli.shards_archive import archive as archive_shards
from coldstream.cli.shards_groups import groups as groups_of_consumers
from coldstream.cli.streams import describe, streams
from coldstream.cli.sweep import sweep
from coldstream.cli.truncate import truncate
from coldstream.cli.up import up
from coldstream.cli.worker import worker
from coldstream.terminal import exits

app = typer.Typer(
    name=PROGRAM,
    cls=CommandGroup,
    help="Keep RabbitMQ Streams for good, on S3: archive them, look them up, read them back.",
    epilog=exits.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:  # noqa: FBT001  the parser calls it so
    if value:
        typer.echo(f"{PROGRAM} {coldstream.__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[  # noqa: ARG001  its callback has done everything
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options of all commands, wherever among the arguments they are."""
    context.meta[DEBUG] = debug


agent_app = typer.Typer(cls=CommandGroup, rich_markup_mode=None)
agent_app.callback(invoke_without_command=True, epilog=exits.HELP)(agent)
agent_app.command("status", cls=Command, epilog=exits.HELP)(status)

gateway_app = typer.Typer(cls=CommandGroup, rich_markup_mode=None)
gateway_app.callback(invoke_without_command=True, epilog=exits.HELP)(gateway)
gateway_app.command("status", cls=Command, epilog=exits.HELP)(gateway_status)
gateway_app.command("hash-password", cls=Command, epilog=exits.HELP)(hash_password)

_BOUND = "Bound the archive, and delete from it"
_MEND = "Check the archive, and mend it"

_RUN = "Run jobs"

_GROUPS: dict[str, tuple[str, str, dict[str, Callable[..., None]]]] = {
    "shards": (
        "Shard streams",
        "Declare sharded streams, see them, and archive queues.",
        {
            "apply": shards.apply,
            "list": shards_show.list_shards,
            "status": shards.status,
            "show": shards_show.show,
            "history": shards_show.history,
            "groups": groups_of_consumers,
            "archive": archive_shards,
        },
    ),
    "jobs": (
        _RUN,
        "Create, see and steer jobs.",
        {
            "list": jobs.list_jobs,
            "create": create_job,
            "show": jobs.show,
            "logs": jobs.logs,
            "pause": jobs.pause,
            "resume": jobs.resume,
            "edit": jobs.edit,
            "cancel": jobs.cancel,
            "delete": jobs.delete,
        },
    ),
    "access": (
        "Maintain the archive",
        "Manage which IAM principals may read streams.",
        {"list": access.grants, "grant": access.grant, "revoke": access.revoke},
    ),
    "policy": (
        _BOUND,
        "Manage how long streams are kept, and in which class.",
        {"list": policy.policies, "show": policy.show, "set": policy.set_policy, "rm": policy.rm},
    ),
    "retention": (
        _BOUND,
        "Remove what the policies let go.",
        {"run": retention.run},
    ),
    "hold": (
        _BOUND,
        "Manage legal holds, against which nothing is removed.",
        {"list": hold.holds, "put": hold.put, "release": hold.release},
    ),
    "quarantine": (
        _MEND,
        "Deal with segments that could not be archived.",
        {
            "list": quarantine.list_quarantine,
            "show": quarantine.show,
            "retry": quarantine.retry,
            "release": quarantine.release,
            "discard": quarantine.discard,
        },
    ),
    "dead-letters": (
        _MEND,
        "Deal with events that the upload function could not handle.",
        {
            "list": dead_letters.list_letters,
            "show": dead_letters.show_letter,
            "redrive": dead_letters.redrive,
            "discard": dead_letters.discard_letters,
        },
    ),
}
"""Panel, help and commands of each group."""

_COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Archive streams": {"announce": announce},
    "Look up and read": {
        "streams": streams,
        "describe": describe,
        "read": read,
        "resolve": resolve,
        "inspect": inspect_file,
    },
    "See and steer it in a browser": {"console": console},
    "Use streams without a broker": {"serve": serve},
    "Run jobs": {"worker": worker},
    "Maintain the archive": {"compact": compact, "replay": replay},
    _BOUND: {
        "truncate": truncate,
        "delete": delete,
        "undelete": undelete,
        "erase": erase,
        "sweep": sweep,
        "restore": restore,
    },
    _MEND: {
        "doctor": doctor,
        "scrub": scrub,
        "garbage": garbage,
        "history": history,
        "rebuild": rebuild,
    },
}
for panel, commands in _COMMANDS.items():
    for name, command in commands.items():
        app.command(name, cls=Command, epilog=exits.HELP, rich_help_panel=panel)(command)
app.add_typer(agent_app, name="agent", rich_help_panel="Archive streams")
app.add_typer(gateway_app, name="gateway", rich_help_panel="Let stock clients read the archive")
for name, (panel, help_, commands) in _GROUPS.items():
    group = typer.Typer(cls=CommandGroup, help=help_, epilog=exits.HELP, no_args_is_help=True, rich_markup_mode=None)
    group.callback()(lambda: None)  # without it, typer takes a group of one command for that command
    for verb, command in commands.items():
        group.command(verb, cls=Command, epilog=exits.HELP)(command)
    app.add_typer(group, name=name, rich_help_panel=panel)
# The panels are in the order in which something is added to them.
app.command("up", cls=Command, epilog=exits.HELP, rich_help_panel="Try it")(up)


def main() -> None:
    """Run the command line of this process."""
    app(prog_name=PROGRAM)


if __name__ == "__main__":
    main()
