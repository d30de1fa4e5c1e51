"""Sequence diagrams are drawn while the site is built. Other diagrams are refused."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def extension(name: str) -> Any:
    """Load one of the site's own extensions, which are no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "_ext" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


sequence = extension("sequence")

DIAGRAM = """
sequenceDiagram
    participant A as holder A
    participant B
    A->>B: a message <that> is longer than both
    B-->>A: granted
    Note over A: stands still
    A--xB: lost
"""


def test_every_participant_message_and_note_is_in_the_picture() -> None:
    picture = ET.fromstring(sequence.draw(DIAGRAM))
    words = [element.text for element in picture.iter("text")]
    assert words == [
        "holder A",
        "B",
        "a message <that> is longer than both",
        "granted",
        "stands still",
        "lost",
    ]
    assert len([path for path in picture.iter("path") if path.get("class") == "head"]) == 2
    assert len([path for path in picture.iter("path") if path.get("class") == "cross"]) == 1


def test_nothing_is_drawn_outside_of_the_picture() -> None:
    wide = DIAGRAM + "    Note over B: " + "a very long remark " * 5
    picture = ET.fromstring(sequence.draw(wide))
    left, _, width, height = map(float, picture.attrib["viewBox"].split())
    for box in picture.iter("rect"):
        assert left <= float(box.attrib["x"])
        assert float(box.attrib["x"]) + float(box.attrib["width"]) <= left + width
        assert float(box.attrib["y"]) + float(box.attrib["height"]) <= height


def test_the_picture_can_be_read_aloud() -> None:
    picture = ET.fromstring(sequence.draw(DIAGRAM))
    assert picture.attrib["aria-label"].endswith(
        "B to holder A: granted; holder A: stands still; holder A to B: lost (lost)"
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("flowchart LR\n  A --> B", "only a sequenceDiagram"),
        ("sequenceDiagram\n  loop forever", "not understood: 'loop forever'"),
        ("sequenceDiagram\n  participant A\n  A->>B: hello", "'B' is no participant"),
    ],
)
def test_a_diagram_that_cannot_be_drawn_is_refused_with_the_reason(source: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sequence.draw(source)


def test_every_diagram_of_the_pages_is_drawn() -> None:
    drawn = 0
    for page in DOCS.glob("*.md"):
        for part in page.read_text(encoding="utf-8").split("```mermaid\n")[1:]:
            ET.fromstring(sequence.draw(part.partition("```")[0]))
            drawn += 1
    assert drawn >= 3
