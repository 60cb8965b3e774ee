"""The program's commands, each of which is imported as it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.main import get_group

from coldstream.cli.arguments import arrange
from coldstream.cli.group import Command, CommandGroup, write_panels
from coldstream.cli.registry import COMMANDS, ListedCommand
from coldstream.terminal import exits


class LazyCommands(Mapping[str, Any]):
    """Commands by name. A look at one imports it; a look at the names imports none."""

    def __init__(self, entries: Mapping[str, ListedCommand]) -> None:
        self._entries = entries
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _command_of(name, self._entries[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Program(CommandGroup):
    """The group of all commands."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = LazyCommands(COMMANDS)  # type: ignore[assignment]  # all that a group does with it is in Mapping

    def list_commands(self, _ctx: Any) -> list[str]:
        """Return the names of the commands, as the help has them."""
        return list(self.commands)

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse arguments, in whatever order they were typed."""
        own = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        return super().parse_args(
            ctx, arrange(args, self.commands, lambda option: None if option in own else self._takes_value(option))
        )

    def format_commands(self, _ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the commands by task, by their entries."""
        panels: dict[str, list[tuple[str, str]]] = {}
        column = max(map(len, COMMANDS))  # one width for all panels, so that their columns line up
        for name, entry in COMMANDS.items():
            panels.setdefault(entry.panel, []).append((name.ljust(column), entry.help))
        write_panels(panels, formatter)

    def _takes_value(self, option: str) -> bool | None:
        options = [one for command in self.commands.values() for one in command.params if option in one.opts]
        return not getattr(options[-1], "is_flag", True) if options else None


def _command_of(name: str, entry: ListedCommand) -> Any:
    parent = typer.Typer(cls=CommandGroup, add_completion=False, rich_markup_mode=None)
    parent.callback()(lambda: None)
    if entry.verbs:
        group = typer.Typer(cls=CommandGroup, epilog=exits.HELP, rich_markup_mode=None)
        if entry.place:
            group.callback(invoke_without_command=True, epilog=exits.HELP)(_function(entry.place))
        else:
            # Without a callback, typer takes a group of one command for that command.
            group.callback(no_args_is_help=True, help=entry.help)(lambda: None)
        for verb, place in entry.verbs.items():
            group.command(verb, cls=Command, epilog=exits.HELP)(_function(place))
        parent.add_typer(group, name=name)
    else:
        assert entry.place is not None
        parent.command(name, cls=Command, epilog=exits.HELP)(_function(entry.place))
    return get_group(parent).commands[name]


def _function(place: str) -> Callable[..., None]:
    module, _, name = place.partition(":")
    found: Callable[..., None] = getattr(import_module(f"coldstream.cli.{module}"), name)
    return found
