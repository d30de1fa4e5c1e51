"""Test the words of the package: nouns as subjects, lines of at most 100 columns, one name a thing.

The rule for subjects also applies to the tests, to the other Python files of the checkout and to
the settings. The settings and the alert rules have lines of at most 100 columns, too.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import aioredlock_ng

pytestmark = pytest.mark.once

ROOT = Path(aioredlock_ng.__file__).parent
PLUGIN = ROOT.parent / "pytest_aioredlock_ng.py"
CHECKOUT = Path(__file__).parents[2]
BESIDE_THE_PACKAGE = ("tests", "benchmarks", "tools", "examples", "docs/_ext")
"""Folders of the checkout whose comments and docstrings follow the rule for subjects as well."""

SETTINGS = {
    path.relative_to(CHECKOUT).as_posix(): path.read_text(encoding="utf-8")
    for pattern in (
        "Makefile",
        "*.toml",
        "*/ruff.toml",
        "*.yml",
        ".*.yaml",
        ".ci/*",
        ".github/**/*.yml",
        "docs/telemetry/*.yml",
    )
    for path in sorted(CHECKOUT.glob(pattern))
}
"""The files of the checkout whose comments begin with "#", without the Python files."""

DATA = (".yml", ".yaml", ".json")
FOR_PEOPLE = {"description", "label", "name", "summary", "title"}
"""Keys of YAML and JSON whose values are texts for people."""

# Folders of the package whose texts are not rewritten yet. Remove a folder when its texts are done.
PENDING: tuple[str, ...] = ()

COLUMNS = 100
"""Longest line of code or comment."""

# A pronoun is followed by a verb, a preposition or a relative clause; a number by a noun.
AFTER_A_PRONOUN = (
    "as|at|by|for|from|has|had|in|is|may|must|can|of|on|that|there|to|was|which|who|whose|will|with"
    "|would|does|alone|only"
)
OPENERS = re.compile(
    r"(?:^|[.!?:;]\s|\n)\s*(?:[*-]\s+)?"
    rf"((?:Who|Whoever|What|Such|Those|Of these)\b|One\s+(?:{AFTER_A_PRONOUN})\b)"
)
# For each of these the glossary of docs/glossary.md has another name: grant or lease, successor,
# trusted, duplicate node, queue, run.
OTHER_NAMES = re.compile(r"holdings?|heir|vouch\w*|twins?|precedence|turn_over|turns")

# The same for texts that users read, and everyday words in place of technical terms.
OTHER_WORDS = re.compile(
    r"\b(heirs?|vouch\w*|twins?|precedence|told|tells?|doubt\w*|owed?|whoever|outrun)\b",
    re.IGNORECASE,
)
A_PHRASE = re.compile(r"[A-Za-z]{2,}[,;:]? [a-z]{2,}[,;:]? [a-z]{2,}")
"""Three words in a row. A shorter string is a name, a key or a part of a protocol."""

ONLY_SEE = re.compile(r"See\s[^\n]*", re.IGNORECASE)


@dataclass(frozen=True)
class Text:
    """A docstring, or the comment lines that stand together."""

    line: int
    words: str


def comments_of(source: str) -> list[Text]:
    """Return the comments of a Python source; lines that follow in one column are one text."""
    found: list[Text] = []
    last = (-1, -1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        words = token.string.lstrip("#:! ").rstrip()
        line, column = token.start
        if last == (line - 1, column):
            found[-1] = Text(found[-1].line, f"{found[-1].words}\n{words}")
        else:
            found.append(Text(line, words))
        last = (line, column)
    return found


def docstrings_of(source: str) -> list[Text]:
    """Return every string that is a statement of a Python source, attribute docs included."""
    return [
        Text(node.lineno, node.value.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def messages_of(source: str) -> list[Text]:
    """Return the strings of a Python source that are texts for people, without docstrings.

    A variable part of a message is "{}".
    """
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in docstrings or id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            ]
            found.append(Text(node.lineno, "".join(parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(Text(node.lineno, node.value))
    return [text for text in found if A_PHRASE.search(text.words)]


def line_comments_of(source: str, sign: str) -> list[Text]:
    """Return the comments from a sign to the end of a line; neighbouring whole lines are one text.

    Inside of code, the sign "#" counts only after a space.
    """
    found: list[Text] = []
    last = -1
    for number, line in enumerate(source.splitlines(), 1):
        code, start, words = line.partition(sign)
        if not start or (sign == "#" and code and not code[-1].isspace()):
            continue
        if not code.strip() and last == number - 1:
            found[-1] = Text(found[-1].line, f"{found[-1].words}\n{words.strip()}")
        else:
            found.append(Text(number, words.strip()))
        last = -1 if code.strip() else number
    return found


def lua_comments_of(source: str) -> list[Text]:
    return line_comments_of(source, "--")


def annotations_of(data: object) -> list[Text]:
    """Return the texts for people in a file of YAML or JSON, such as each `description`."""
    if isinstance(data, list):
        return [text for value in data for text in annotations_of(value)]
    if not isinstance(data, dict):
        return []
    return [
        text
        for key, value in data.items()
        for text in (
            [Text(0, value)]
            if key in FOR_PEOPLE and isinstance(value, str)
            else annotations_of(value)
        )
    ]


def texts_of(name: str, source: str) -> list[Text]:
    if name.endswith(".lua"):
        return lua_comments_of(source)
    return comments_of(source) + docstrings_of(source) + messages_of(source)


def without_a_subject(texts: list[Text]) -> list[str]:
    """Return where a sentence begins with a pronoun that no listener can resolve."""
    return [
        f"line {text.line}: a sentence begins with {match[1]!r}"
        for text in texts
        for match in OPENERS.finditer(text.words)
    ]


def too_long(source: str) -> list[str]:
    return [
        f"line {number}: {len(line)} columns"
        for number, line in enumerate(source.splitlines(), 1)
        if len(line) > COLUMNS
    ]


def empty_references(docstrings: list[Text]) -> list[str]:
    """Return the docstrings that only send their reader elsewhere."""
    return [
        f"line {text.line}: {text.words.strip()!r} does not say what the code does"
        for text in docstrings
        if ONLY_SEE.fullmatch(text.words.strip())
    ]


def names_of(name: str, source: str) -> set[str]:
    """Return every name in a Python or Lua source; for Lua, every word outside of comments."""
    if name.endswith(".lua"):
        return set(re.findall(r"[A-Za-z_]\w*", re.sub(r"--.*", "", source)))
    return {
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.NAME
    }


def other_names(name: str, source: str) -> list[str]:
    """Return the names for which the glossary has another."""
    return sorted(
        found for found in names_of(name, source) if OTHER_NAMES.fullmatch(found.lower().strip("_"))
    )


def is_pending(path: Path) -> bool:
    first = path.relative_to(ROOT).parts[0]
    return first in PENDING or ("*.py" in PENDING and first.endswith(".py"))


SOURCES = {
    path.relative_to(ROOT.parent).as_posix(): path.read_text(encoding="utf-8")
    for path in [*(path for path in sorted(ROOT.rglob("*")) if not is_pending(path)), PLUGIN]
    if path.suffix in {".py", ".lua"}
}


def test_every_sentence_has_a_noun_as_its_subject() -> None:
    hidden = {name: without_a_subject(texts_of(name, source)) for name, source in SOURCES.items()}
    assert {name: found for name, found in hidden.items() if found} == {}


@pytest.mark.parametrize("folder", BESIDE_THE_PACKAGE)
def test_every_sentence_of_the_tests_has_a_noun_as_its_subject(folder: str) -> None:
    sources = {
        path.relative_to(CHECKOUT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((CHECKOUT / folder).rglob("*.py"))
    }
    texts = {name: comments_of(source) + docstrings_of(source) for name, source in sources.items()}
    assert sum(map(len, texts.values())) > 0
    hidden = {name: without_a_subject(found) for name, found in texts.items()}
    assert {name: found for name, found in hidden.items() if found} == {}


def test_every_sentence_of_the_settings_and_of_the_dashboard_has_a_noun_as_its_subject() -> None:
    dashboard = "docs/telemetry/grafana.json"
    sources = SETTINGS | {dashboard: (CHECKOUT / dashboard).read_text(encoding="utf-8")}
    texts = {
        name: line_comments_of(source, "#")
        + annotations_of(yaml.safe_load(source) if name.endswith(DATA) else None)
        for name, source in sources.items()
    }
    assert {"Makefile", ".ci/run", "pyproject.toml", "docs/telemetry/alerts.yml"} <= texts.keys()
    assert len(texts[dashboard]) >= 20
    hidden = {name: without_a_subject(found) + other_words(found) for name, found in texts.items()}
    assert {name: found for name, found in hidden.items() if found} == {}


@pytest.mark.parametrize(
    "source", ["# Who is next waits.", "make: # Who is next", "a: [{description: What was lost.}]"]
)
def test_a_setting_without_a_noun_is_found(source: str) -> None:
    texts = line_comments_of(source, "#") + annotations_of(yaml.safe_load(source))
    assert len(without_a_subject(texts)) == 1


def test_no_line_is_longer_than_a_hundred_columns() -> None:
    long = {name: too_long(source) for name, source in (SOURCES | SETTINGS).items()}
    assert {name: found for name, found in long.items() if found} == {}


def test_no_docstring_only_refers_elsewhere() -> None:
    empty = {
        name: empty_references(docstrings_of(source))
        for name, source in SOURCES.items()
        if name.endswith(".py")
    }
    assert {name: found for name, found in empty.items() if found} == {}


def test_one_thing_has_one_name() -> None:
    other = {name: other_names(name, source) for name, source in SOURCES.items()}
    assert {name: found for name, found in other.items() if found} == {}


def other_words(texts: list[Text]) -> list[str]:
    """Return where a text has a word for which the glossary has another."""
    return [
        f"line {text.line}: {match[1]!r} in {text.words!r}"
        for text in texts
        for match in OTHER_WORDS.finditer(text.words)
    ]


def test_no_message_has_a_word_that_the_glossary_replaces() -> None:
    messages = {
        name: messages_of(source) for name, source in SOURCES.items() if name.endswith(".py")
    }
    assert sum(map(len, messages.values())) > 500
    other = {name: other_words(texts) for name, texts in messages.items()}
    assert {name: found for name, found in other.items() if found} == {}


@pytest.mark.parametrize(
    "source",
    [
        'raise ValueError("the node was told so")',
        'why = f"the node {node} vouches for it"',
        'log("whoever waits is notified " "again")',
    ],
)
def test_a_word_that_the_glossary_replaces_is_found_in_a_message(source: str) -> None:
    assert len(other_words(messages_of(source))) == 1


def test_a_message_that_begins_with_a_pronoun_is_found() -> None:
    assert without_a_subject(messages_of('raise ValueError("it ends. Who waits gets nothing")'))


@pytest.mark.parametrize(
    "source", ['"""The node was told so."""', 'x = "told"', 'x = "a-b told c"']
)
def test_docstrings_and_short_strings_are_no_messages(source: str) -> None:
    assert messages_of(source) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.py", "class Holding: ..."),
        ("a.py", "_heir = 1"),
        ("a.lua", "local vouch = 1 -- holding"),
    ],
)
def test_a_name_that_the_glossary_replaces_is_found(name: str, source: str) -> None:
    assert len(other_names(name, source)) == 1


def test_a_pending_folder_exists() -> None:
    assert all((ROOT / folder).is_dir() for folder in PENDING if folder != "*.py")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("comment", "Who is next waits."),
        ("comment", "Keys:\n\n    What was granted ends."),
        ("docstring", "It ends. Whoever waits is notified."),
        ("docstring", "Keys:\n\n    What was granted ends."),
        ("docstring", "Args:\n    name: Such a name is refused."),
        ("docstring", "* Those that wait are notified."),
        ("lua", "A node may fail. Of these, two answer."),
        ("lua", "One of them is down."),
        ("lua", "One that is held is refused."),
    ],
)
def test_a_sentence_without_a_noun_is_found(kind: str, sentence: str) -> None:
    lines = sentence.splitlines()
    if kind == "comment":
        found = comments_of("x = 1\n" + "".join(f"# {line}\n" for line in lines))
    elif kind == "docstring":
        found = docstrings_of(f'def f():\n    """Return.\n\n{sentence}\n    """\n')
    else:
        found = lua_comments_of("local x = 1\n" + "".join(f"-- {line}\n" for line in lines))
    assert len(without_a_subject(found)) == 1


@pytest.mark.parametrize(
    "sentence",
    [
        "One node answers.",
        "Return what was asked for, and such keys as expired.",
        "A server tells one of two things.",
        "Whole seconds.",
    ],
)
def test_a_sentence_with_a_noun_is_left_alone(sentence: str) -> None:
    assert not without_a_subject(docstrings_of(f'"""{sentence}"""'))


def test_a_comment_behind_code_and_the_docstring_of_an_attribute_are_read() -> None:
    source = 'x = 1  # Who reads this?\n"""Those seconds."""\n'
    assert len(without_a_subject(comments_of(source))) == 1
    assert len(without_a_subject(docstrings_of(source))) == 1
    assert len(without_a_subject(lua_comments_of("local x = 1 -- Who reads this?"))) == 1


def test_a_line_of_a_hundred_and_one_columns_is_found() -> None:
    assert too_long("x" * 100 + "\n" + "y" * 101) == ["line 2: 101 columns"]


@pytest.mark.parametrize(
    "words", ["See `Sink.stands`.", "see Node", "  See `Node.ask`: the port.  "]
)
def test_a_docstring_that_only_refers_elsewhere_is_found(words: str) -> None:
    assert empty_references(docstrings_of(f'def f():\n    """{words}"""\n'))


def test_a_docstring_that_refers_elsewhere_after_its_own_sentence_is_left_alone() -> None:
    assert not empty_references(docstrings_of('"""Return the key. See `Node.ask`."""'))
