"""`coldstream gateway hash-password`: a line for the file of users of a gateway that answers alone."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def hash_password(
    user: Annotated[str, typer.Argument(help="Name of the user.", metavar="USER", show_default=False)],
) -> None:
    """Print a user's line for --users.

    The password is asked for, or read from standard input, a line, if that is no terminal. It is not on the command
    line, where others could see it. Example: `coldstream gateway hash-password ada >> users`.
    """
    from coldstream.errors import InvalidSettingError
    from coldstream.gateway.alone.password_file import hash_password as hashed

    if not user or ":" in user or not user.isprintable() or user.startswith("#") or user != user.strip():
        raise InvalidSettingError("USER", f"{user[:80]!r} is empty, or has blanks around it, a colon or line breaks")
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise InvalidSettingError("password", "is empty")
    typer.echo(f"{user}:{hashed(password)}")
