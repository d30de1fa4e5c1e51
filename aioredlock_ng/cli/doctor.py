"""Provide the command `doctor`, which examines the nodes and prints the diagnosis."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.console import Console

from aioredlock_ng import ConfigurationError, Options, Severity
from aioredlock_ng._doctor.finding_kinds import KINDS
from aioredlock_ng.doctor import PROBE, WATCH, diagnose

from .demo.interruption import Interruption
from .doctor_view import print_lines, print_tables
from .settings import (
    AS_IN_THE_SERVICES,
    KeyFormatOption,
    NodeOption,
    NodeTimeoutOption,
    name_of,
    options_of,
)

__all__ = ["doctor"]

_STATUS = {None: 0, Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}


def doctor(
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL...]",
            help="The nodes, in addition to those of --node.",
            show_default=False,
        ),
    ] = None,
    node: NodeOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON to standard output. Times are seconds.")
    ] = False,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help=(
                "Print lines without control codes. This is the default if the output is not a"
                " terminal."
            ),
        ),
    ] = False,
    ttl: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="ttl of your locks. Default: the environment, else 10.",
            show_default=False,
        ),
    ] = None,
    node_timeout: NodeTimeoutOption = None,
    max_ttl: Annotated[
        float | None, typer.Option(metavar="SECONDS", help=AS_IN_THE_SERVICES, show_default=False)
    ] = None,
    drift_factor: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help=f"A share of the ttl. {AS_IN_THE_SERVICES}", show_default=False
        ),
    ] = None,
    fencing: Annotated[
        bool | None,
        typer.Option("--fencing/--no-fencing", help=AS_IN_THE_SERVICES, show_default=False),
    ] = None,
    recovery_guard: Annotated[
        str | None,
        typer.Option(
            metavar="GUARD", help=f"auto, strict or none. {AS_IN_THE_SERVICES}", show_default=False
        ),
    ] = None,
    key_format: KeyFormatOption = None,
    connect_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help=(
                "Time limit for connecting, and for each request after it. Default: the"
                " environment."
            ),
            show_default=False,
        ),
    ] = None,
    watch: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=3600,
            metavar="SECONDS",
            help=(
                "Time between two readings of each node's clock, 0.1 to 3600. A longer time gives a"
                " more precise rate of the clock."
            ),
        ),
    ] = WATCH,
    probe: Annotated[
        str,
        typer.Option(
            metavar="PREFIX",
            help="Prefix of the name of the test lock that is acquired on each node.",
        ),
    ] = PROBE,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="CODE",
            help="Code of a finding that you accept. Repeat the option for each code.",
        ),
    ] = None,
) -> None:
    """Run the command `doctor`, which pages.py describes."""
    errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    accepted = set(ignore or ())
    if unknown := accepted - KINDS.keys():
        errors.print(
            f"aioredlock-ng doctor: no finding is called {', '.join(sorted(unknown))}; the codes"
            f" are {', '.join(KINDS)}"
        )
        raise typer.Exit(2)
    try:
        nodes, settings = options_of(
            [*(urls or ()), *(node or ())],
            ttl=ttl,
            node_timeout=node_timeout,
            max_ttl=max_ttl,
            drift_factor=drift_factor,
            key_format=key_format,
            fencing=fencing,
            recovery_guard=recovery_guard,
            connect_timeout=connect_timeout,
        )
        with Interruption() as interruption:
            diagnosis = interruption.run(
                diagnose(nodes, Options(**settings), watch=watch, probe=name_of(probe))
            )
    except ConfigurationError as error:
        errors.print(f"aioredlock-ng doctor: {error}")
        raise typer.Exit(2) from None
    findings = tuple(finding for finding in diagnosis.findings if finding.code not in accepted)
    diagnosis = replace(
        diagnosis, findings=findings, severity=findings[0].severity if findings else None
    )
    status = _STATUS[diagnosis.severity]
    if as_json:
        sys.stdout.write(json.dumps({**asdict(diagnosis), "exit_status": status}, indent=2) + "\n")
    elif plain or not sys.stdout.isatty():
        print_lines(diagnosis, sys.stdout.write)
    else:
        print_tables(diagnosis, Console())
    raise typer.Exit(status)
