"""The command `doctor`: reads its options and hands the diagnosis on; never judges a node itself."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.console import Console

from aioredlock_ng import ConfigurationError, Options, Severity
from aioredlock_ng._core.finding_kinds import KINDS
from aioredlock_ng.doctor import PROBE, WATCH, diagnose

from .demo.interruption import Interruption
from .doctor_view import print_lines, print_tables

__all__ = ["doctor"]

_STATUS = {None: 0, Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}
_NODES_ENV = "AIOREDLOCK_NG_NODES"


def doctor(
    urls: Annotated[
        list[str] | None,
        typer.Argument(metavar="URL...", help=f"The nodes; without any, those in {_NODES_ENV}.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything that was found and seen, for machines.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Lines without control codes; so it is where no terminal is.")] = False,
    ttl: Annotated[float, typer.Option(help="Life of your locks, seconds.", envvar="AIOREDLOCK_NG_TTL")] = 10.0,
    node_timeout: Annotated[
        float, typer.Option(help="As in your Redlock, seconds.", envvar="AIOREDLOCK_NG_NODE_TIMEOUT")
    ] = 0.1,
    max_ttl: Annotated[float, typer.Option(help="As in your Redlock, seconds.", envvar="AIOREDLOCK_NG_MAX_TTL")] = 60.0,
    drift_factor: Annotated[
        float, typer.Option(help="As in your Redlock, share of ttl.", envvar="AIOREDLOCK_NG_DRIFT_FACTOR")
    ] = 0.01,
    fencing: Annotated[bool, typer.Option(help="As in your Redlock.")] = True,
    recovery_guard: Annotated[
        str, typer.Option(metavar="auto|strict|none", help="As in your Redlock.", case_sensitive=False)
    ] = "auto",
    key_format: Annotated[str, typer.Option(help="As in your Redlock.", envvar="AIOREDLOCK_NG_KEY_FORMAT")] = "{name}",
    connect_timeout: Annotated[
        float,
        typer.Option(help="Seconds for connecting, and for each question after it.", envvar="AIOREDLOCK_NG_CONNECT_TIMEOUT"),
    ] = 2.0,
    watch: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds between two looks at the clocks; longer tells more.")
    ] = WATCH,
    probe: Annotated[str, typer.Option(help="Beginning of the name of the lock that is tried on each node.")] = PROBE,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="CODE", help="A finding that you know of and accept; repeatable.")
    ] = None,
) -> None:
    """Examine the nodes of a lock: what weakens each and the set, what it means, what to do.

    A lock under a name of its own is taken and released on each; nothing is left behind.

    The exit status is 0 when nothing is wrong, 1 with warnings, 2 with errors or when it could not begin.
    """
    errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    given = urls or [url.strip() for url in os.environ.get(_NODES_ENV, "").split(",") if url.strip()]
    if not given:
        errors.print(f"aioredlock_ng doctor: no nodes; name their URLs, or set {_NODES_ENV}")
        raise typer.Exit(2)
    accepted = set(ignore or ())
    if unknown := accepted - KINDS.keys():
        errors.print(f"aioredlock_ng doctor: no finding is called {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
        raise typer.Exit(2)
    try:
        options = Options(
            ttl=ttl,
            node_timeout=node_timeout,
            max_ttl=max_ttl,
            drift_factor=drift_factor,
            key_format=key_format,
            fencing=fencing,
            recovery_guard=None if recovery_guard == "none" else recovery_guard,
            connect_timeout=connect_timeout,
        )
        with Interruption() as interruption:
            diagnosis = interruption.run(diagnose(given, options, watch=watch, probe=probe))
    except ConfigurationError as error:
        errors.print(f"aioredlock_ng doctor: {error}")
        raise typer.Exit(2) from None
    findings = tuple(finding for finding in diagnosis.findings if finding.code not in accepted)
    diagnosis = replace(diagnosis, findings=findings, severity=findings[0].severity if findings else None)
    status = _STATUS[diagnosis.severity]
    if as_json:
        sys.stdout.write(json.dumps({**asdict(diagnosis), "exit_status": status}, indent=2) + "\n")
    elif plain or not sys.stdout.isatty():
        print_lines(diagnosis, sys.stdout.write)
    else:
        print_tables(diagnosis, Console())
    raise typer.Exit(status)
