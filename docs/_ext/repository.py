"""Make links that work in the repository work on the site too, without changing the files.

Pages link to files beside `docs/` (`../README.md#install`). The README is shown as a page, and
links to files below `docs/` (`docs/fencing.md`). Both kinds of link are rewritten as the files are
read, to the page that shows the target. MyST offers other targets for download if they exist. `..
programs:: folder` shows the whole programs of a folder.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]

SHOWN = {
    "README.md": "docs/project/readme.md",
    "CHANGELOG.md": "docs/project/changes.md",
    "CONTRIBUTING.md": "docs/project/contributing.md",
    "SECURITY.md": "docs/project/security.md",
    "benchmarks/README.md": "docs/project/benchmarks.md",
    "benchmarks": "docs/project/benchmarks.md",
    "examples": "docs/project/examples.md",
}
"""Files outside `docs/`, and the pages of the site that show them.

The paths start at the root of the repository.
"""

FENCE = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<open>\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?P<close>\))")


def rewrite(text: str, at: str, shown_at: str) -> str:
    """Return a page with its relative links as they must be on the site.

    Args:
        text: The Markdown; what stands in fenced blocks is left alone.
        at: The folder in which the file lies, from the root of the repository.
        shown_at: The folder of the page that shows it.
    """

    def link(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(at, match["path"]))
        if not (ROOT / path).exists():
            return match[0]
        if not path.startswith("docs/") or at != shown_at:
            path = posixpath.relpath(SHOWN.get(path, path), shown_at)
            return f"{match['open']}{path}{match['anchor'] or ''}{match['close']}"
        return match[0]

    parts, done = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(link, text[done : fence.start()]), fence[0]]
        done = fence.end()
    return "".join([*parts, LINK.sub(link, text[done:])])


def _page_read(app: Sphinx, docname: str, content: list[str]) -> None:
    folder = posixpath.normpath(posixpath.join("docs", posixpath.dirname(docname)))
    content[0] = rewrite(content[0], folder, folder)


def _file_included(app: Sphinx, path: Path, _: str, content: list[str]) -> None:
    at = Path(os.path.normpath(app.srcdir / path)).parent.relative_to(ROOT).as_posix()
    # MyST passes only the last part of the page's name.
    content[0] = rewrite(
        content[0],
        "" if at == "." else at,
        posixpath.join("docs", posixpath.dirname(app.env.docname)),
    )


class Programs(SphinxDirective):
    """A section for each Python file of a folder: what its docstring says first, and the file."""

    required_arguments = 1
    option_spec: ClassVar = {}

    def run(self) -> list[nodes.Node]:
        """Show them in alphabetical order."""
        sections: list[nodes.Node] = []
        for path in sorted((ROOT / self.arguments[0]).glob("*.py")):
            source = path.read_text(encoding="utf-8")
            self.env.note_dependency(str(path))
            title = nodes.title("", path.name)
            first = (
                (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0].replace("\n", " ")
            )
            code = nodes.literal_block(source, source, language="python")
            section = nodes.section(
                "", title, nodes.paragraph(first, first), code, names=[path.name], ids=[path.stem]
            )
            self.state.document.note_explicit_target(section)
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both readers and the directive."""
    app.add_directive("programs", Programs)
    app.connect("source-read", _page_read)
    app.connect("include-read", _file_included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
