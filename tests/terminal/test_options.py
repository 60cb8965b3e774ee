"""Options that are declared once, as argparse and as typer have them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from coldstream.cli.declared_options import with_declared_options
from coldstream.terminal.options import add_options, from_namespace, option


@dataclass(frozen=True, slots=True, kw_only=True)
class PaintArguments:
    color: str = option("red", flag="--in", metavar="COLOR", help="Paint in this color, 100% of it.")
    broker: str = option("here", variable="PAINT_BROKER", help="Where the paint is.", group="supply")
    coats: int = option(1, help="How many coats.")
    rate: float | None = option(None, help="Walls an hour.")
    surface: str = option("wall", choices=("wall", "door"), help="What to paint.")
    dry_run: bool = option(False, help="Paint nothing.")


GIVEN = ["--in", "blue", "--coats", "2", "--rate", "0.5", "--surface", "door", "--dry-run"]
BLUE = PaintArguments(color="blue", coats=2, rate=0.5, surface="door", dry_run=True)


def by_argparse(
    *argv: str, environment: dict[str, str] | None = None, leave_out: tuple[str, ...] = ()
) -> PaintArguments:
    parser = argparse.ArgumentParser()
    add_options(parser, PaintArguments, environment=environment or {}, leave_out=leave_out)
    return from_namespace(PaintArguments, parser.parse_args(argv))


def by_typer(*argv: str, environment: dict[str, str] | None = None) -> PaintArguments:
    found: list[PaintArguments] = []

    @with_declared_options
    def paint(name: str, *, arguments: PaintArguments, loud: bool = False) -> None:
        assert (name, loud) == ("hall", True)
        found.append(arguments)

    app = typer.Typer()
    app.command()(paint)
    result = CliRunner().invoke(app, ["hall", "--loud", *argv], env=environment or {}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (arguments,) = found
    return arguments


@pytest.mark.parametrize("parse", [by_argparse, by_typer])
def test_both_parsers_make_the_same_of_the_same(parse: object) -> None:
    assert callable(parse)
    assert parse() == PaintArguments()
    assert parse(*GIVEN) == BLUE
    assert parse(environment={"PAINT_BROKER": "there"}) == PaintArguments(broker="there")
    assert parse("--broker", "mine", environment={"PAINT_BROKER": "there"}) == PaintArguments(broker="mine")


def test_what_is_left_out_is_no_option_and_has_its_default() -> None:
    assert by_argparse(leave_out=("coats",)) == PaintArguments()
    with pytest.raises(SystemExit):
        by_argparse("--coats", "2", leave_out=("coats",))


def test_the_help_of_argparse_has_text_default_variable_and_group() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, PaintArguments, environment={})
    words = " ".join(parser.format_help().split())
    assert "--in COLOR Paint in this color, 100% of it. Default: red." in words
    assert "Where the paint is. Else PAINT_BROKER in the environment." in words
    assert "supply: --broker" in words
