"""Describe a lock's parameters to FastAPI, and the lock's error answers in OpenAPI."""

from __future__ import annotations

import inspect
from typing import Any

from fastapi import params

__all__ = ["parameter_of", "response_of"]


def parameter_of(name: str, declared: Any) -> inspect.Parameter:
    """Return a parameter for a dependency's signature.

    `declared` is a type or `Depends(...)`, as in the arguments of `lock_for`.
    """
    kind = inspect.Parameter.KEYWORD_ONLY
    if isinstance(declared, params.Depends):
        return inspect.Parameter(name, kind, default=declared)
    return inspect.Parameter(name, kind, annotation=declared)


def response_of(description: str) -> dict[str, Any]:
    """Return the OpenAPI description of an error answer of a lock."""
    detail = {
        "type": "object",
        "properties": {"detail": {"type": "string"}},
        "required": ["detail"],
    }
    return {
        "description": description,
        "headers": {
            "Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}
        },
        "content": {"application/json": {"schema": detail}},
    }
