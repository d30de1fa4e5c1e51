"""How the site is built: `make docs`. Neither the build nor a reader needs a network."""

import sys
import tomllib
from pathlib import Path

from pygments.lexers.sql import PostgresLexer
from sphinx.application import Sphinx

import aioredlock_ng

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
_PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_SOURCE = _PROJECT["urls"]["Source"].rstrip("/")

project = "aioredlock_ng"
author = "aioredlock_ng contributors"
project_copyright = f"%Y, {author}"
version = release = aioredlock_ng.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "reference",
    "repository",
    "sequence",
]
exclude_patterns = ["_*"]

html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": True,
    # The theme supports three hosts. It would warn about `source_repository`, which is a
    # placeholder.
    "source_view_link": f"{_SOURCE}/blob/main/docs/{{filename}}?plain=1",
    "top_of_page_buttons": ["view"],
}

# Commands are copied without their prompts and output.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
copybutton_copy_empty_lines = False

# Links to headings, as GitHub names them.
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
# Only dashes are converted. Quotes stay as they are written.
smartquotes_action = "D"

# Single backticks in docstrings: a link where the name is ours, else code.
default_role = "py:obj"
# Pages for names of other projects cannot be found without a network. All our names must be found.
nitpick_ignore_regex = [
    # A name in backticks may go over the end of a line.
    ("py:obj", "(?s:.*)"),
    ("py:.*", r"(?!aioredlock_ng\b)\w+(\.\w+)+"),
    (
        "py:.*",
        (
            r"[A-Z]|aioredlock_ng\..*\._\w+|Any|Callable|Iterable|Mapping|Metric|Node|OnLost|Path"
            r"|Redis|RedisCluster|Retry|Self|Sequence|TracebackType|Unpack|ViewOptions"
        ),
    ),
]
autodoc_member_order = "bysource"
# A longer signature has one parameter on each line.
python_maximum_signature_line_length = 88
# The source page of a name opens the module that the name is imported from.
viewcode_follow_imported_members = True
# The value of a default may come from this machine, as that of `os.environ` does.
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
napoleon_use_rtype = False


def setup(app: Sphinx) -> None:
    """The parameters of PostgreSQL, `$1`, are no SQL to the lexer of that name."""
    app.add_lexer("sql", PostgresLexer)
