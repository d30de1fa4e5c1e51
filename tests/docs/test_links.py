"""Links that work where the repository is browsed are rewritten for the site, and no others."""

from __future__ import annotations

import pytest

from tests.docs.test_diagrams import extension

rewrite = extension("repository").rewrite


@pytest.mark.parametrize(
    ("link", "on_the_site"),
    [
        ("](../README.md#install)", "](project/readme.md#install)"),
        ("](../benchmarks/README.md)", "](project/benchmarks.md)"),
        ("](../CHANGELOG.md)", "](project/changes.md)"),
        ("](../examples/worker.py)", "](../examples/worker.py)"),
        ("](fencing.md#the-rule)", "](fencing.md#the-rule)"),
        ("](images/chaos-ours.png)", "](images/chaos-ours.png)"),
        ("](#options)", "](#options)"),
        ("](https://redis.io/docs)", "](https://redis.io/docs)"),
        ("](../nothing.md)", "](../nothing.md)"),
    ],
)
def test_links_of_a_page_are_rewritten_for_the_site(link: str, on_the_site: str) -> None:
    assert rewrite(f"see [it{link}.", "docs", "docs") == f"see [it{on_the_site}."


@pytest.mark.parametrize(
    ("link", "on_the_site"),
    [
        ("](docs/fencing.md)", "](../fencing.md)"),
        ("](docs/images/chaos-ours.png)", "](../images/chaos-ours.png)"),
        ("](examples)", "](examples.md)"),
        ("](examples/worker.py)", "](../../examples/worker.py)"),
        ("](benchmarks/README.md)", "](benchmarks.md)"),
        ("](#options)", "](#options)"),
    ],
)
def test_links_of_the_readme_are_rewritten_for_its_page_of_the_site(
    link: str, on_the_site: str
) -> None:
    assert rewrite(f"see [it{link}.", "", "docs/project") == f"see [it{on_the_site}."


def test_links_in_a_fenced_block_are_left_alone() -> None:
    page = "[a](../README.md)\n```text\n[a](../README.md)\n```\n[a](../README.md)\n"
    changed = "[a](project/readme.md)\n```text\n[a](../README.md)\n```\n[a](project/readme.md)\n"
    assert rewrite(page, "docs", "docs") == changed
