"""Write the API reference from `__all__` and the docstrings, so that no public name is missing.

The docstrings are Google style with single backticks and fenced blocks. reStructuredText would
misread some of this, so this extension converts it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from docutils.statemachine import StringList
from sphinx.addnodes import desc, pending_xref
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

FENCE = re.compile(r"(?P<indent> *)```(?P<language>\w*)")
SHORT = 60
COLON = "\ue000"
SYNC = "aioredlock_ng.sync"
SYNCHRONOUS = (
    SYNC,
    *(f"aioredlock_ng.integrations.{name}" for name in ("celery", "django", "flask", "rq")),
)
SHARED = {
    **dict.fromkeys(("Redlock", "Lock", "Semaphore", "Lease"), "aioredlock_ng"),
    **dict.fromkeys(("LockOptions", "GuardOptions"), "aioredlock_ng.guarded"),
}
INTERNAL = re.compile(r"^Internal: ", re.MULTILINE)
RAISES = re.compile(r"(?P<indent> +)(?P<errors>\w+(?:, \w+)+): (?P<when>.+)")


class Public(SphinxDirective):
    """`.. public:: module` documents the module's exports, and nothing if there is no such module.

    With `:names:`, only those exports; with `:except:`, all others. With `:below:`, the public
    modules of the package follow, each under a heading.
    """

    required_arguments = 1
    option_spec: ClassVar = {"below": lambda _: True, "except": str.split, "names": str.split}

    def run(self) -> list[nodes.Node]:
        """Hand the work to autodoc."""
        name = self.arguments[0]
        module = _module(name)
        if module is None:
            return []
        left_out = self.options.get("except", [])
        wanted = [
            name for name in self.options.get("names") or _exports(module) if name not in left_out
        ]
        lines = list(_entries(module, wanted))
        if "below" in self.options:
            for below in _public_modules(module):
                lines += ["", below.__name__, "~" * len(below.__name__), "", *_opening(below), ""]
                lines += _entries(below, _exports(below))
        return self.parse_text_to_nodes(StringList(lines, name), allow_section_headings=True)


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only a missing module is ignored. A missing dependency of the module is an error.
        if error.name is not None and (name + ".").startswith(error.name + "."):
            return None
        raise


def _public_modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(getattr(package, "__path__", ())):
        if not found.name.startswith("_"):
            yield importlib.import_module(f"{package.__name__}.{found.name}")


def _exports(module: ModuleType) -> list[str]:
    return [name for name in getattr(module, "__all__", ()) if not name.startswith("__")]


def _opening(module: ModuleType) -> list[str]:
    return inspect.cleandoc(module.__doc__ or "").splitlines()


def _entries(module: ModuleType, wanted: list[str]) -> Iterator[str]:
    for name in wanted:
        thing = getattr(module, name)
        if not isinstance(thing, type) and not inspect.isroutine(thing):
            yield from _data(module, name, thing)
            continue
        if isinstance(thing, type):
            kind = "exception" if issubclass(thing, BaseException) else "class"
            options = [
                "   :members:",
                "   :special-members: __aenter__, __aexit__",
                "   :show-inheritance:",
            ]
            options += ["   :undoc-members:"] if issubclass(thing, Enum) else []
            # A class of a private module is part of the public class that extends it.
            options += (
                ["   :inherited-members: object"]
                if _is_private(thing.__base__) and kind == "class"
                else []
            )
        else:
            kind, options = "function", []
        yield from ("", f".. auto{kind}:: {module.__name__}.{name}", *options, "")


def _is_private(thing: type | None) -> bool:
    return thing is not None and (thing.__name__.startswith("_") or "._" in thing.__module__)


def _data(module: ModuleType, name: str, thing: object) -> Iterator[str]:
    """Document a constant by the string below it.

    The constant may be made in another module of the package.
    """
    yield from ("", f".. py:data:: {module.__name__}.{name}")
    if isinstance(thing, int | float | str) and len(repr(thing)) < SHORT:
        yield f"   :value: {thing!r}"
    made = [
        m
        for key, m in sorted(sys.modules.items())
        if key.startswith(module.__name__) and getattr(m, name, None) is thing
    ]
    for body in (ast.parse(inspect.getsource(m)).body for m in made):
        for statement, below in pairwise(body):
            named = (
                isinstance(statement, ast.Assign | ast.AnnAssign)
                and name in ast.unparse(statement).partition("=")[0]
            )
            match below:
                case ast.Expr(ast.Constant(str(words))) if named:
                    yield from (
                        "",
                        *("   " + line for line in inspect.cleandoc(words).splitlines()),
                        "",
                    )
                    return


def _docstring_read(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Convert docstrings before napoleon reads them.

    Fences become blocks, errors that share a line are separated, and the cancellation paragraph is
    set off.
    """
    read: list[str] = []
    inside, before = False, ""
    # Napoleon would read the text before a colon as a type.
    typeless = what in ("attribute", "data", "property")
    for line in lines:
        if fence := FENCE.fullmatch(line):
            inside = not inside
            read += (
                ["", f"{fence['indent']}.. code-block:: {fence['language'] or 'text'}", ""]
                if inside
                else []
            )
        elif inside:
            read.append("   " + line if line else "")
        elif raises := RAISES.fullmatch(line):
            read += [
                f"{raises['indent']}{error}: {raises['when']}"
                for error in raises["errors"].split(", ")
            ]
        else:
            if typeless or before.strip() == "Returns:":
                line = line.replace(":", COLON)
            line = re.sub(r"^(\s*)Safety: ", r"\1**Safety:** ", line)
            read.append(re.sub(r"(`[^`]+`)(?=\w)", r"\1\\ ", line))
        typeless, before = False, line
    lines[:] = read


def _docstring_converted(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    lines[:] = [line.replace(COLON, ":") for line in lines]


def _member(
    app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object
) -> bool | None:
    """Leave out methods whose docstring marks them as internal.

    One part of the library calls these methods in another part.
    """
    return True if INTERNAL.search(inspect.getdoc(thing) or "") else None


def _bases(app: Sphinx, name: str, thing: type, options: object, bases: list[type]) -> None:
    """Replace a private base by its own bases."""
    while private := [base for base in bases if _is_private(base)]:
        place = bases.index(private[0])
        bases[place : place + 1] = private[0].__bases__


def _signature(
    app: Sphinx, what: str, name: str, thing: object, options: object, signature: str, returned: str
) -> tuple[str, str] | None:
    """Hide the arguments of classes that users do not construct."""
    made = what == "exception" or (what == "class" and "ade by `" in (inspect.getdoc(thing) or ""))
    return ("", "") if made and signature else None


def _name_unknown(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Find a name of ours by its last word.

    Code imports the name from the module that makes it, and users import it from a public module.
    """
    word = node["reftarget"].rpartition(".")[2] if node.get("refdomain") == "py" else ""
    for name, found in env.domains["py"].objects.items() if word else ():
        if (
            name.startswith("aioredlock_ng.")
            and name.endswith("." + word)
            and "." not in name.removesuffix(word)[14:-1]
        ):
            return make_refnode(
                app.builder, node["refdoc"], found.docname, found.node_id, content, name
            )
    return None


class Unambiguous(SphinxPostTransform):
    """Link a bare name such as `Redlock` to the class of the package that the text is about.

    `aioredlock_ng.sync` has classes of the same names, which some integrations use. Sphinx would
    report each such name as ambiguous.
    """

    default_priority = 5

    def run(self, **_: object) -> None:
        """Complete the names before they are resolved."""
        for node in self.document.findall(pending_xref):
            word = node["reftarget"].rpartition(".")[2]
            if node.get("refdomain") == "py" and node["reftarget"] == word and word in SHARED:
                in_sync = _module_around(node).startswith(SYNCHRONOUS)
                node["reftarget"] = f"{SYNC if in_sync else SHARED[word]}.{word}"


def _module_around(node: nodes.Element) -> str:
    """Return the module of the name that a node is about.

    The node of a function's signature does not have the module itself.
    """
    if module := node.get("py:module"):
        return str(module)
    while node is not None and not isinstance(node, desc):
        node = node.parent
    return "" if node is None else str(node[0].get("module") or "")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive, and the hooks that convert docstrings around napoleon."""
    app.add_directive("public", Public)
    app.add_post_transform(Unambiguous)
    app.connect("missing-reference", _name_unknown)
    app.connect("autodoc-process-docstring", _docstring_read, priority=400)
    app.connect("autodoc-process-docstring", _docstring_converted, priority=600)
    app.connect("autodoc-skip-member", _member)
    app.connect("autodoc-process-bases", _bases)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
