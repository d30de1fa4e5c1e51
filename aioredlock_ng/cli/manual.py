"""Define the class of every command, and lay out its help."""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .pages import PAGES
from .wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Command", "Group"]

_WIDEST = 80
"""Largest width of the lines, in characters. Longer lines would be hard to read."""

_NARROWEST = 40
"""Smallest width of the lines, even if the terminal has fewer columns. A shorter line has no room
for an option and its value."""

_FIRST_COLUMN = 24
"""Characters for an option's name. A longer name has a line of its own."""


class Command(TyperCommand):
    """A command whose help has a page in `PAGES`.

    No word of the help is cut. typer itself would shorten the descriptions of commands with "..."
    and break options at hyphens.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, and refuse nan as the value of an option.

        Each comparison with nan is False, so in older versions of typer nan passes the limits.
        """
        rest: list[str] = super().parse_args(ctx, args)
        params: list[Any] = list(self.get_params(ctx))
        for param in params:
            value = ctx.params.get(param.name)
            if isinstance(value, float) and math.isnan(value):
                raise typer.BadParameter("nan is not a number", ctx=ctx, param=param)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words that follow the command's name in the usage line."""
        arguments = [
            param.metavar for param in self.get_params(ctx) if param.param_type_name == "argument"
        ]
        return [word for word in ("[OPTIONS]", *arguments, PAGES[self.name or ""].behind) if word]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description, arguments, options, exit statuses and examples."""
        page = PAGES[self.name or ""]
        params: list[Any] = list(self.get_params(ctx))
        arguments = [
            (param.metavar, param.help) for param in params if param.param_type_name == "argument"
        ]
        sections = (
            ("Arguments", _rows(arguments)),
            ("Options", _rows(map(_option, params))),
            ("Exit status", _rows(page.statuses)),
            ("Examples", (f"  {example}" for example in page.examples)),
        )
        formatter.write(_laid_out(ctx, self, sections))


class Group(TyperGroup):
    """The group of all commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description, options and the list of commands."""
        commands = [
            (name, _first_paragraph(self.get_command(ctx, name)))
            for name in self.list_commands(ctx)
        ]
        sections = (
            ("Options", _rows(map(_option, self.get_params(ctx)))),
            ("Commands", _rows(commands)),
        )
        formatter.write(_laid_out(ctx, self, sections))


def _laid_out(ctx: Any, command: Any, sections: Iterable[tuple[str, Iterable[str]]]) -> str:
    usage = f"Usage: {ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}"
    lines = [*_wrapped(usage, "", " " * len("Usage: "))]
    for paragraph in (command.help or "").split("\n\n"):
        lines += ["", *_wrapped(paragraph, "  ")]
    for head, body in sections:
        if body := list(body):
            lines += ["", f"{head}:", *body]
    return "\n".join(lines) + "\n"


def _first_paragraph(command: Any) -> str:
    return str(command.help or "").partition("\n\n")[0]


def _option(param: Any) -> tuple[str, str]:
    """Return two texts: an option's names with its metavar, and its help with the default.

    The result is ("", "") for an argument.
    """
    if param.param_type_name == "argument":
        return "", ""
    names = " / ".join(
        ", ".join(sorted(names, key=len)) for names in (param.opts, param.secondary_opts) if names
    )
    if param.is_flag:
        return names, param.help or ""
    shown = param.show_default is not False and param.default is not None
    default = (
        f" [default: {param.default:g}]"
        if isinstance(param.default, float)
        else f" [default: {param.default}]"
    )
    return f"{names} {param.metavar}", (param.help or "") + (default if shown else "")


def _rows(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Lay out names and texts in two columns. A long name has a line of its own above its text."""
    pairs = [(first, text or "-") for first, text in pairs if first]
    column = min(max((len(first) for first, _ in pairs), default=0), _FIRST_COLUMN)
    for first, text in pairs:
        indent = " " * (column + 4)
        lines: Sequence[str] = _wrapped(text, indent)
        if len(first) <= column:
            yield f"  {first:<{column}}  {lines[0].lstrip()}"
            lines = lines[1:]
        else:
            yield f"  {first}"
        yield from lines


def _wrapped(text: str, indent: str, further: str | None = None) -> list[str]:
    width = min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)
    return wrapped(text, width, indent, further)
