"""The files that services read are valid. They name commands, actions and Pythons that exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.packaging.workflows import ROOT, WORKFLOWS, commands, jobs, load, steps

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.once

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
SCHEMAS = [
    *((path, "github-workflows") for path in WORKFLOWS),
    *(
        (path, "github-issue-config" if path.stem == "config" else "github-issue-forms")
        for path in FORMS
    ),
    (ROOT / ".github" / "dependabot.yml", "dependabot"),
    (ROOT / ".readthedocs.yaml", "readthedocs"),
]
HOOKS = ROOT / ".pre-commit-config.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MOVING = {"pypa/gh-action-pypi-publish@release/v1"}
"""Actions that are not pinned by commit, because the commit of their newest release is not known.
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def noxfile() -> ModuleType:
    spec = importlib.util.spec_from_file_location("noxfile_of_the_project", ROOT / "noxfile.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {
        name
        for names in re.findall(r"^([\w./ -]+):(?!=)", makefile, re.MULTILINE)
        for name in names.split()
    }


def sessions(noxfile: ModuleType) -> set[str]:
    """The sessions of every machine: here some Pythons may be missing."""
    named = re.findall(
        r'@nox\.session\(name="([\w-]+)"', (ROOT / "noxfile.py").read_text(encoding="utf-8")
    )
    return {*named, *(f"python{version}" for version in (*noxfile.VERSIONS, noxfile.FREE_THREADED))}


def unknown(line: str, noxfile: ModuleType) -> str:
    """Say what a command names that the project does not have, "" if it has all of it."""
    program, *words = shlex.split(line.removeprefix("sudo "))
    if program == "make":
        known = targets()
        missing = [word for word in words if "=" not in word and word not in known]
        for setting in words:
            name, _, value = setting.partition("=")
            missing += (
                []
                if name != "SESSION"
                else [session for session in value.split() if session not in sessions(noxfile)]
            )
        return ", ".join(missing)
    return "" if (ROOT / program).is_file() and (ROOT / program).stat().st_mode & 0o100 else program


@pytest.mark.parametrize(
    ("path", "schema"), SCHEMAS, ids=lambda value: value.name if isinstance(value, Path) else ""
)
def test_a_file_that_a_service_reads_is_valid_by_the_schema_of_that_service(
    path: Path, schema: str
) -> None:
    done = run("check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_hooks_are_valid() -> None:
    done = run("pre_commit", "validate-config", str(HOOKS))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "name", ["lock.py", "pyproject.toml", "docs/index.md", "acquire.lua", "quality.yml"]
)
def test_a_commit_of_one_text_alone_is_checked(name: str) -> None:
    # pre-commit brings it: `make test` has neither.
    from identify.identify import tags_from_filename

    (check,) = (
        hook
        for repo in load(HOOKS)["repos"]
        for hook in repo["hooks"]
        if hook["entry"] == "make check"
    )
    assert not check.keys() & {"files", "exclude", "types_or", "exclude_types"}
    assert set(check["types"]) <= tags_from_filename(name)


def test_every_job_ends_by_itself_when_it_hangs() -> None:
    assert [
        name for name, job in jobs() if "uses" not in job and "timeout-minutes" not in job
    ] == []


def test_every_command_of_a_workflow_is_one_that_the_project_has(noxfile: ModuleType) -> None:
    found = list(commands())
    assert len({name for name, _ in found}) >= 8
    assert [(name, line, wrong) for name, line in found if (wrong := unknown(line, noxfile))] == []


@pytest.mark.parametrize(
    "line", ["make nothing", "make matrix SESSION=nothing", "sudo .ci/nothing", "pytest tests"]
)
def test_a_command_that_the_project_does_not_have_is_noticed(
    line: str, noxfile: ModuleType
) -> None:
    assert unknown(line, noxfile)


def test_hooks_and_the_builder_of_the_site_run_commands_that_the_project_has(
    noxfile: ModuleType,
) -> None:
    entries = [hook["entry"] for repo in load(HOOKS)["repos"] for hook in repo["hooks"]]
    entries += [
        line
        for line in load(ROOT / ".readthedocs.yaml")["build"]["commands"]
        if line.startswith("make")
    ]
    assert len(entries) == 3
    assert [entry for entry in entries if unknown(entry, noxfile)] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "RELEASING.md"])
def test_the_commands_that_a_page_for_maintainers_names_exist(
    page: str, noxfile: ModuleType
) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = re.findall(r"^ *(make [^#\n]+)", text, re.MULTILINE) + re.findall(
        r"`(make [^`]+)`", text
    )
    assert len(lines) >= 3
    assert [line for line in lines if unknown(line, noxfile)] == []


def test_the_gate_runs_the_command_of_the_readme_first_and_then_the_rest_of_all_tests() -> None:
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    ran = [
        name
        for names in re.findall(r"^make ([\w -]+)", gate, re.MULTILINE)
        for name in names.split()
    ]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"^test-all: ([\w -]+)$", makefile, re.MULTILINE) == [" ".join(ran)]
    assert f"$ make {ran[0]}\n" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_actions_are_pinned_by_commit_and_name_the_version_of_that_commit() -> None:
    used = [
        line.partition("uses: ")[2]
        for path in WORKFLOWS
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    for action in filter(None, used):
        assert (
            action in MOVING
            or action.startswith("./")
            or re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", action)
        ), action


def test_one_action_has_one_pin() -> None:
    pins: dict[str, set[str]] = {}
    for _, step in steps():
        if "uses" in step:
            name, _, pin = step["uses"].partition("@")
            pins.setdefault(name, set()).add(pin)
    assert {name: found for name, found in pins.items() if len(found) > 1} == {}


def test_a_job_may_read_the_code_and_only_the_publishing_job_may_prove_its_identity() -> None:
    assert [path.name for path in WORKFLOWS if load(path)["permissions"] != {}] == []
    rights = {name: job["permissions"] for name, job in jobs()}
    assert rights.pop("release/publish") == {"id-token": "write"}
    assert {name: held for name, held in rights.items() if held != {"contents": "read"}} == {}


def test_no_checkout_leaves_its_credentials_behind() -> None:
    checkouts = [
        step for _, step in steps() if step.get("uses", "").startswith("actions/checkout@")
    ]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_no_expression_becomes_part_of_a_command() -> None:
    assert [step["run"] for _, step in steps() if "${{" in step.get("run", "")] == []


def test_the_tested_files_are_published_and_no_others() -> None:
    publish = dict(jobs())["release/publish"]
    others = {name.partition("/")[2] for name, _ in jobs() if name.startswith("release/")} - {
        "publish"
    }
    assert set(publish["needs"]) == others
    called = {job["uses"] for name, job in jobs() if name.startswith("release/") and "uses" in job}
    assert called == {
        f"./.github/workflows/{path.name}" for path in WORKFLOWS if path.stem != "release"
    }
    assert [step["uses"].partition("@")[0] for step in publish["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
    assert publish["steps"][1]["with"]["attestations"] is True


def test_the_pythons_of_the_classifiers_are_the_tested_pythons(noxfile: ModuleType) -> None:
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert claimed == list(noxfile.VERSIONS)
    assert dict(jobs())["test/suite"]["strategy"]["matrix"]["python"] == claimed
    assert PROJECT["requires-python"] == f">={claimed[0]}"
    assert dict(jobs())["package/wheel"]["strategy"]["matrix"]["python"] == [
        claimed[0],
        claimed[-1],
    ]


def test_no_failure_on_a_python_that_is_claimed_is_forgiven() -> None:
    assert [name for name, job in jobs() if job.get("continue-on-error")] == ["test/free-threaded"]


def test_a_pull_request_runs_every_workflow_but_the_release() -> None:
    # YAML 1.1 reads the key `on` as True.
    triggers = {path.stem: load(path)[True] for path in WORKFLOWS}
    assert triggers.pop("release") == {"push": {"tags": ["v*"]}}
    assert {
        name
        for name, on in triggers.items()
        if "pull_request" not in on or "workflow_call" not in on
    } == set()
