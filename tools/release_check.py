"""Refuses to publish files that do not belong to a tag: `make release-check TAG=v1.2.3`.

The checkout is that of the tag, and `dist/` holds the files to publish.
"""

from __future__ import annotations

import re
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).parents[1]

PLACEHOLDER = ".invalid"
"""The top-level domain of every placeholder in `[project.urls]`.

No such host can exist (RFC 2606).
"""


def main() -> None:
    """Name each reason against publishing as the tag `sys.argv[1]`, and fail if there is one."""
    wrong = reasons(sys.argv[1], ROOT / "CHANGELOG.md", ROOT / "dist")
    if wrong:
        raise SystemExit("\n".join(["not to be published:", *(f"* {reason}" for reason in wrong)]))
    print(f"{sys.argv[1]} may be published")


def reasons(tag: str, changelog: Path, dist: Path) -> list[str]:
    """Return the reasons against publishing the files in `dist` as `tag`.

    Args:
        tag: The tag, such as "v1.2.3".
        changelog: The changelog, newest version first.
        dist: The folder with one wheel and one source distribution.

    Returns:
        A sentence for each reason, none if the files may be published.
    """
    found = []
    newest = re.search(r"^## (.+)$", changelog.read_text(encoding="utf-8"), re.MULTILINE)
    heading = newest[1] if newest else ""
    if not re.fullmatch(rf"{re.escape(tag.removeprefix('v'))} \(\d{{4}}-\d\d-\d\d\)", heading):
        found.append(
            f"The changelog begins with {heading!r}, not with the version of {tag} and a date."
        )
    names = sorted(path.name for path in dist.glob("*.*") if not path.name.startswith("."))
    wheels = list(dist.glob("*.whl"))
    if len(wheels) != 1 or len(names) != 2 or not any(name.endswith(".tar.gz") for name in names):
        return [*found, f"dist/ must hold one wheel and one source distribution. It holds {names}."]
    metadata = _metadata(wheels[0])
    version = metadata["Version"]
    if tag != f"v{version}":
        found.append(f"The tag {tag} is not v and the version of the wheel, {version}.")
    if any(f"-{version}" not in name for name in names):
        found.append(f"The files are not all of version {version}: {names}.")
    urls = metadata.get_all("Project-URL", [])
    if placeholders := [url for url in urls if PLACEHOLDER in url]:
        found.append(f"[project.urls] in pyproject.toml has placeholders: {placeholders}.")
    return found


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


if __name__ == "__main__":
    main()
