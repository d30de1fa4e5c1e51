"""Define the kind of a finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aioredlock_ng.records import Finding, Severity

__all__ = ["ERROR", "INFO", "WARNING", "Kind"]

ERROR: Final = Severity.ERROR
WARNING: Final = Severity.WARNING
INFO: Final = Severity.INFO


@dataclass(frozen=True, slots=True)
class Kind:
    """The common part of all findings of one kind.

    Attributes:
        code: Name for machines and for the list in docs/operations.md.
        severity: Default severity. The rule may choose another severity.
        meaning: Consequence for locks.
        remedy: Action to take. The rule may choose another action.
        guarded: Meaning if the recovery guard is on. The finding then has the severity info. "" if
            the guard does not change the meaning.
        alone: Meaning for a set of one node, if `recovery_guard` is "auto". "" if the size of the
            set does not change the meaning. With "auto", only a process that used the node before
            can notice that the node lost all its data.
    """

    code: str
    severity: Severity
    meaning: str
    remedy: str
    guarded: str = ""
    alone: str = ""

    def found(
        self,
        nodes: str | tuple[str, ...],
        what: str,
        *,
        severity: Severity | None = None,
        remedy: str | None = None,
        guard: bool = False,
    ) -> Finding:
        """Return the finding about these nodes. An empty tuple stands for the whole set."""
        where = (nodes,) if isinstance(nodes, str) else nodes
        if guard and self.guarded:
            return Finding(self.code, INFO, where, what, self.guarded, remedy or self.remedy)
        return Finding(
            self.code, severity or self.severity, where, what, self.meaning, remedy or self.remedy
        )
