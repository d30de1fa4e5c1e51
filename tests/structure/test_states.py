"""A state has a closed set of values, and its type is an enum or a `Literal`, never `str`."""

from __future__ import annotations

import ast

from tests.structure.package import modules

STATES = {
    "cause", "command", "error", "fsync", "kind", "mode", "on_lost", "outcome", "phase", "problem",
    "recovery_guard", "role", "severity", "state", "status", "trust", "verdict",
}  # fmt: skip

TEXTS = {
    "Frame.problem": "a sentence for people",
    "NodeFacts.fsync": "the server's own text, which nobody checks",
    "NodeFacts.role": "the server's own text, which nobody checks",
    "NotALock.kind": "the server's own text: its modules define types of their own",
}


def texts(tree: ast.Module) -> set[str]:
    """Return the fields that are called like a state and may hold any text, as `Class.field`."""
    return {
        f"{scope.name}.{node.target.id}"
        for scope in ast.walk(tree)
        if isinstance(scope, ast.ClassDef)
        for node in scope.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id in STATES
        if any(
            isinstance(part, ast.Name) and part.id == "str" for part in ast.walk(node.annotation)
        )
    }


def test_a_state_is_an_enum_or_a_literal_unless_it_is_a_text_of_somebody_else() -> None:
    assert set().union(*(texts(module.tree) for module in modules())) == set(TEXTS)


def test_a_state_that_may_be_any_text_is_found() -> None:
    tree = ast.parse(
        "class A:\n    cause: str = 'x'\n    role: str | None\n"
        "    state: Literal['up']\n    reason: str\n"
    )
    assert texts(tree) == {"A.cause", "A.role"}
