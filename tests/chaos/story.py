"""Histories of a run that tests write by hand, for the checker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.check import check

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BEGIN", "MS", "Story"]

MS: Final = 1_000_000
BEGIN: Final = 1_000_000 * MS


class Story:
    """Histories of a run in which nothing is wrong until a test says so; times are milliseconds
    since its begin.
    """

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        self._folder = folder
        self._lines: dict[str, list[dict[str, Any]]] = {"nemesis": [], "relay": []}
        self._numbers: dict[str, int] = {}
        self.nemesis(0, "begin", nodes=nodes, ttl=1.5)

    def nemesis(self, at: float, event: str, **fields: Any) -> None:
        self._add("nemesis", at, event, **fields)

    def process(self, name: str, number: int, kind: str = "ours") -> None:
        self._lines[name] = []
        self._add(name, 0, "start", p=name, of=number, kind=kind)

    def hold(self, process: str, got: float, ended: float | None, **more: Any) -> int:
        """Add a hold that ends by its release, or with its process if `ended` is None.

        Return its number.
        """
        number = self._numbers[process] = self._numbers.get(process, 0) + 1
        fence, name = more.get("fence", int(BEGIN // MS + got)), more.get("name", "a")
        over, token = more.get("deadline", got + 1480), more.get("token", f"{process}-{number}")

        def deadline(at: float) -> int:
            """Return the deadline as reported at `at`, if renewals move it to `over` in the end."""
            return self._at(min(over, at + 1480))

        asked = self._at(more.get("asked", got - 2))
        about = {"w": more.get("how", "with"), "v": more.get("votes", "")}
        about |= {key: more[key] for key in ("c", "s", "m", "h", "fair") if key in more}
        about["b"] = self._at(more.get("since", got - 1))
        self._add(
            process,
            got,
            "got",
            i=number,
            a=asked,
            n=more.get("names", [name]),
            d=deadline(got),
            f=fence,
            k=token,
            **about,
        )
        if "down" in more:
            self._add(process, more["down"], "down", i=number)
            self._add(
                process,
                more["down"],
                "downgraded",
                i=number,
                f=more.get("read_fence", fence),
                d=deadline(more["down"]),
            )
        if "lost" in more:
            self._add(
                process, more["lost"], "lost", i=number, d=deadline(more["lost"]), why="a reason"
            )
        if ended is not None:
            plain = [[name, *write[:2], self._at(write[2])] for write in more.get("plain", ())]
            fenced = [[name, *write[:3], self._at(write[3])] for write in more.get("fenced", ())]
            why = "a reason" if "lost" in more else ""
            end: dict[str, Any] = {"d": deadline(ended)}
            if "o" in more:
                end["o"] = more["o"]
            if "reads" in more:
                end["r"] = [[name, *read[:3], self._at(read[3])] for read in more["reads"]]
            if "over" in more:
                end["z"] = self._at(more["over"])
            self._add(process, ended, "end", i=number, l=why, p=plain, x=fenced, **end)
        return number

    def event(self, process: str, at: float, event: str, **fields: Any) -> None:
        self._add(process, at, event, **fields)

    def fault(self, at: float, healed: float, well: float, kind: str, *nodes: int) -> None:
        number = len(self._lines["nemesis"])
        self.nemesis(at, "fault", i=number, k=kind, n=nodes)
        self.nemesis(healed, "heal", i=number)
        self.nemesis(well, "well", i=number)

    def delete(
        self,
        at: float,
        token: str,
        again: tuple[int, ...] = (),
        on: tuple[int, ...] = (0, 1, 2),
        asked: float | None = None,
        name: str = "a",
    ) -> None:
        a, s = self._at(at if asked is None else asked), self._at(at)
        self.nemesis(at, "delete", name=name, k=token, a=a, s=s, n=on, c=[1] * len(on), again=again)

    def findings(self) -> tuple[list[str], list[str]]:
        """Kinds of violations, and kinds of what is not promised."""
        self.nemesis(10_000, "over")
        for name, lines in self._lines.items():
            text = "".join(
                json.dumps(line) + "\n" for line in sorted(lines, key=lambda line: line["t"])
            )
            (self._folder / f"{name}.jsonl").write_text(text)
        _, judgement = check(self._folder)
        return [finding.kind for finding in judgement.violations], [
            finding.kind for finding in judgement.beyond
        ]

    def _add(self, process: str, at: float, event: str, **fields: Any) -> None:
        self._lines[process].append({"t": self._at(at), "e": event, **fields})

    @staticmethod
    def _at(ms: float) -> int:
        return BEGIN + int(ms * MS)
