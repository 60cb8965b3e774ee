"""The command `coldstream`: its commands, grouped by task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import coldstream
from coldstream.cli import access, dead_letters, hold, policy, quarantine, retention, shards, shards_show
from coldstream.cli.agent import agent
from coldstream.cli.agent_status import status
from coldstream.cli.announce import announce
from coldstream.cli.compact import compact
from coldstream.cli.delete import delete, undelete
from coldstream.cli.doctor import doctor
from coldstream.cli.erase import erase
from coldstream.cli.garbage import garbage
from coldstream.cli.group import DEBUG, PROGRAM, Command, CommandGroup
from coldstream.cli.history import history
from coldstream.cli.inspect_file import inspect_file
from coldstream.cli.read import read
from coldstream.cli.rebuild import rebuild
from coldstream.cli.replay import replay
from coldstream.cli.resolve import resolve
from coldstream.cli.restore import restore
from coldstream.cli.scrub import scrub
from coldstream.cli.shards_archive import archive as archive_shards
from coldstream.cli.shards_groups import groups as groups_of_consumers
from coldstream.cli.streams import describe, streams
from coldstream.cli.sweep import sweep
from coldstream.cli.truncate import truncate
from coldstream.cli.up import up
from coldstream.console import exits

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

access_app = typer.Typer(
    cls=CommandGroup,
    help="Manage which IAM principals may read streams.",
    epilog=exits.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
)
access_app.command("list", cls=Command, epilog=exits.HELP)(access.grants)
access_app.command("grant", cls=Command, epilog=exits.HELP)(access.grant)
access_app.command("revoke", cls=Command, epilog=exits.HELP)(access.revoke)

policy_app = typer.Typer(
    cls=CommandGroup,
    help="Manage how long streams are kept, and in which class.",
    epilog=exits.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
)
policy_app.command("list", cls=Command, epilog=exits.HELP)(policy.policies)
policy_app.command("show", cls=Command, epilog=exits.HELP)(policy.show)
policy_app.command("set", cls=Command, epilog=exits.HELP)(policy.set_policy)
policy_app.command("rm", cls=Command, epilog=exits.HELP)(policy.rm)

retention_app = typer.Typer(
    cls=CommandGroup,
    help="Remove what the policies let go.",
    epilog=exits.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
)
retention_app.callback()(lambda: None)
retention_app.command("run", cls=Command, epilog=exits.HELP)(retention.run)

hold_app = typer.Typer(
    cls=CommandGroup,
    help="Manage legal holds, against which nothing is removed.",
    epilog=exits.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
)
hold_app.command("list", cls=Command, epilog=exits.HELP)(hold.holds)
hold_app.command("put", cls=Command, epilog=exits.HELP)(hold.put)
hold_app.command("release", cls=Command, epilog=exits.HELP)(hold.release)

quarantine_app = typer.Typer(
    cls=CommandGroup,
    help="Deal with segments that could not be archived.",
    epilog=exits.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
)
quarantine_app.command("list", cls=Command, epilog=exits.HELP)(quarantine.list_quarantine)
quarantine_app.command("show", cls=Command, epilog=exits.HELP)(quarantine.show)
quarantine_app.command("retry", cls=Command, epilog=exits.HELP)(quarantine.retry)
quarantine_app.command("release", cls=Command, epilog=exits.HELP)(quarantine.release)
quarantine_app.command("discard", cls=Command, epilog=exits.HELP)(quarantine.discard)

dead_letters_app = typer.Typer(
    cls=CommandGroup,
    help="Deal with events that the upload function could not handle.",
    epilog=exits.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
)
dead_letters_app.command("list", cls=Command, epilog=exits.HELP)(dead_letters.list_letters)
dead_letters_app.command("show", cls=Command, epilog=exits.HELP)(dead_letters.show_letter)
dead_letters_app.command("redrive", cls=Command, epilog=exits.HELP)(dead_letters.redrive)
dead_letters_app.command("discard", cls=Command, epilog=exits.HELP)(dead_letters.discard_letters)

shards_app = typer.Typer(
    cls=CommandGroup,
    help="Declare sharded streams, see them, and archive queues.",
    epilog=exits.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
)
shards_app.command("apply", cls=Command, epilog=exits.HELP)(shards.apply)
shards_app.command("list", cls=Command, epilog=exits.HELP)(shards_show.list_shards)
shards_app.command("status", cls=Command, epilog=exits.HELP)(shards.status)
shards_app.command("show", cls=Command, epilog=exits.HELP)(shards_show.show)
shards_app.command("history", cls=Command, epilog=exits.HELP)(shards_show.history)
shards_app.command("groups", cls=Command, epilog=exits.HELP)(groups_of_consumers)
shards_app.command("archive", cls=Command, epilog=exits.HELP)(archive_shards)

_BOUND = "Bound the archive, and delete from it"
_MEND = "Check the archive, and mend it"

_COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Archive streams": {"announce": announce},
    "Look up and read": {
        "streams": streams,
        "describe": describe,
        "read": read,
        "resolve": resolve,
        "inspect": inspect_file,
    },
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
    "Try it": {"up": up},
}
for panel, commands in _COMMANDS.items():
    for name, command in commands.items():
        app.command(name, cls=Command, epilog=exits.HELP, rich_help_panel=panel)(command)
app.add_typer(agent_app, name="agent", rich_help_panel="Archive streams")
app.add_typer(shards_app, name="shards", rich_help_panel="Shard streams")
app.add_typer(access_app, name="access", rich_help_panel="Maintain the archive")
app.add_typer(policy_app, name="policy", rich_help_panel=_BOUND)
app.add_typer(retention_app, name="retention", rich_help_panel=_BOUND)
app.add_typer(hold_app, name="hold", rich_help_panel=_BOUND)
app.add_typer(quarantine_app, name="quarantine", rich_help_panel=_MEND)
app.add_typer(dead_letters_app, name="dead-letters", rich_help_panel=_MEND)


def main() -> None:
    """Run the command line of this process."""
    app(prog_name=PROGRAM)


if __name__ == "__main__":
    main()
