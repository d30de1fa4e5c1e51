"""The package as its sources say it is, read by `ast`; never imports what it describes."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import aioredlock_ng

__all__ = ["Import", "Module", "modules"]

PACKAGE = "aioredlock_ng"


@dataclass(frozen=True)
class Import:
    """One imported module, and the name taken from it, "" for the module itself."""

    module: str
    name: str
    line: int


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    is_package: bool
    tree: ast.Module

    @property
    def part(self) -> str:
        """The part of the house it belongs to: the first name below the package, "" for the package
        itself.
        """
        return (self.name + ".").split(".")[1]

    def imports(self) -> list[Import]:
        """Return every import anywhere in the file, with relative ones spelled out; type-only ones
        are imports too.
        """
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found += [Import(alias.name, "", node.lineno) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node.level, node.module)
                found += [Import(base, alias.name, node.lineno) for alias in node.names]
        return found

    def _absolute(self, level: int, module: str | None) -> str:
        if level == 0:
            return module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - level + (1 if self.is_package else 0)]
        return ".".join([*parts, module] if module else parts)

    def public_definitions(self) -> set[str]:
        """Return the functions and classes that the file itself defines and does not mark as
        private.
        """
        definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        return {
            node.name
            for node in self.tree.body
            if isinstance(node, definitions) and not node.name.startswith("_")
        }

    def reexports(self) -> set[str]:
        """Return the public names that the file takes from the package when it is run."""
        return {
            alias.asname or alias.name
            for node in self.tree.body
            if isinstance(node, ast.ImportFrom)
            and (node.level or (node.module or "").partition(".")[0] == PACKAGE)
            for alias in node.names
            if not (alias.asname or alias.name).startswith("_")
        }


@cache
def modules() -> tuple[Module, ...]:
    """Return every module of the package that is imported here, be it the checkout's or an
    installed wheel's.
    """
    root = Path(aioredlock_ng.__file__).parent
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = [PACKAGE, *path.relative_to(root).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found.append(Module(name, is_package, ast.parse(path.read_text(encoding="utf-8"))))
    return tuple(found)
