"""Spreads the cases of a test over the server versions.

Many tests check two things: the servers understand the scripts, and each kind of lock keeps its
promise. Neither needs every kind on every version. A test with the mark `spread` runs each case on
one version, and on each version some case. The first version depends on the name of the test. For
this reason the tests of one file combine each case with each version.

The mark `versions("one")` is for tests without cases in a file whose other tests check the same
scripts on each version. The test then runs on one version, which depends on its name, too.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Case = TypeVar("Case")
Version = TypeVar("Version")

__all__ = ["arguments_of", "chosen", "parametrize", "rows", "spread"]


def spread(
    name: str, cases: Iterable[Any], ids: Iterable[str] | Callable[[Any], str] = str
) -> pytest.MarkDecorator:
    """Return the mark of a test whose argument `name` takes each of the cases.

    The mark replaces `pytest.mark.parametrize`. The cases of several such marks are crossed with
    each other, and the crossed cases are spread over the versions.
    """
    cases = list(cases)
    named = [ids(case) for case in cases] if callable(ids) else list(ids)
    return pytest.mark.spread(name, [*zip(cases, named, strict=True)])


def arguments_of(metafunc: pytest.Metafunc) -> list[tuple[str, list[tuple[Any, str]]]]:
    """Return the name of each argument that is spread, with its cases and their ids."""
    return [(mark.args[0], mark.args[1]) for mark in metafunc.definition.iter_markers("spread")]


def chosen(metafunc: pytest.Metafunc, versions: Sequence[Version]) -> Sequence[Version]:
    """Return the versions that a test without `spread` runs on."""
    mark = metafunc.definition.get_closest_marker("versions")
    if mark is None or mark.args == ("all",):
        return versions
    assert mark.args == ("one",), mark
    return [versions[_first(metafunc) % len(versions)]]


def parametrize(
    metafunc: pytest.Metafunc, versions: Sequence[Version], version_id: Callable[[Version], str]
) -> None:
    """Parametrize a test that has the mark, without versions if it needs no server of them."""
    arguments = arguments_of(metafunc)
    names = [name for name, _ in arguments]
    crossed = list(product(*(cases for _, cases in arguments)))
    if not versions:
        metafunc.parametrize(
            names,
            [[case for case, _ in row] for row in crossed],
            ids=["-".join(case_id for _, case_id in row) for row in crossed],
        )
        return
    spread_rows = rows(crossed, versions, _first(metafunc))
    metafunc.parametrize(
        ["server_version", *names],
        [[version, *(case for case, _ in row)] for row, version in spread_rows],
        ids=[
            "-".join([version_id(version), *(case_id for _, case_id in row)])
            for row, version in spread_rows
        ],
    )


def rows(
    cases: Sequence[Case], versions: Sequence[Version], first: int
) -> list[tuple[Case, Version]]:
    """Return each case with a version. Return a case again if there are fewer cases than versions.

    After as many rows as there are versions, one version is skipped. Otherwise each of four crossed
    cases would always meet the same of four versions.
    """
    count = len(versions)
    return [
        (cases[row % len(cases)], versions[(first + row + row // count) % count])
        for row in range(max(len(cases), count))
    ]


def _first(metafunc: pytest.Metafunc) -> int:
    return crc32(metafunc.definition.originalname.encode())
