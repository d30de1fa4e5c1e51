"""Define the options that several commands share, and make the manager from them."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from aioredlock_ng import Options, Redlock
from aioredlock_ng._core.keys import MAX_SLOTS
from aioredlock_ng.environment import PREFIX, naming_variables, settings_from

__all__ = [
    "AS_IN_THE_SERVICES",
    "JsonOption",
    "KeyFormatOption",
    "NameArgument",
    "NodeOption",
    "NodeTimeoutOption",
    "PatternArgument",
    "manager",
    "name_of",
    "options_of",
    "slots_option",
]

_NODES = f"{PREFIX}NODES"

AS_IN_THE_SERVICES = "The value that your services use. Default: the environment."

NodeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--node",
        metavar="URL",
        help=f"URL of a node. Repeat the option for each node. Default: {_NODES}.",
        show_default=False,
    ),
]
NodeTimeoutOption = Annotated[
    float | None,
    typer.Option("--node-timeout", metavar="SECONDS", help=AS_IN_THE_SERVICES, show_default=False),
]
KeyFormatOption = Annotated[
    str | None,
    typer.Option("--key-format", metavar="FORMAT", help=AS_IN_THE_SERVICES, show_default=False),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Write JSON to standard output. Times are seconds.")
]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The lock's name.", show_default=False)
]
PatternArgument = Annotated[
    str,
    typer.Argument(
        metavar="[PATTERN]",
        help="A pattern for names, in the syntax of SCAN: 'order:*'.",
        show_default=False,
    ),
]


def slots_option(text: str) -> Any:
    """Return the option for a semaphore's number of slots, with `text` as its help."""
    return typer.Option(min=1, max=MAX_SLOTS, metavar="N", help=text, show_default=False)


def options_of(nodes: list[str] | None, **given: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the nodes' URLs and the manager's options.

    A given option overrides the environment unless it is None. As in the environment, the value
    "none" of `recovery_guard` turns the guard off.

    Raises:
        ConfigurationError: There are no nodes, or a value is invalid.
    """
    given = {name: value for name, value in given.items() if value is not None}
    # `settings_from` splits the variable at commas. A password may contain a comma, so the variable
    # gets a placeholder instead of the given nodes.
    environ = {**os.environ, _NODES: "redis://given"} if nodes else os.environ
    urls, found = settings_from(environ, given)
    if given.get("recovery_guard") == "none":
        given["recovery_guard"] = None
    options = {**found, **given}
    with naming_variables(*found):
        Options(**options)
    return nodes or urls, options


def manager(nodes: list[str] | None, **given: Any) -> Redlock:
    """Return the manager for a command, without opening it.

    Raises:
        ConfigurationError: There are no nodes, or a setting is invalid.
    """
    urls, options = options_of(nodes, **given)
    return Redlock(urls, **options)


def name_of(word: str) -> str | bytes:
    """Return a word of the command line as a lock's name: bytes if it is not UTF-8, else text."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return os.fsencode(word)
    return word
