"""Provide the command `inspect`, which shows the holders of a lock or a semaphore."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

from .demo.interruption import Interruption
from .exits import reported
from .settings import (
    JsonOption,
    KeyFormatOption,
    NameArgument,
    NodeOption,
    NodeTimeoutOption,
    manager,
    name_of,
    slots_option,
)
from .shown import (
    as_dict,
    fence,
    holder,
    is_lock,
    life,
    owner,
    print_json,
    readers,
    safe,
    slots_as_dict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioredlock_ng import LockInfo, ReaderInfo, Redlock, SemaphoreInfo

__all__ = ["inspect"]


def inspect(
    name: NameArgument,
    slots: Annotated[
        int | None,
        slots_option("Show the N slots of the semaphore NAME instead of a lock."),
    ] = None,
    as_json: JsonOption = False,
    node: NodeOption = None,
    node_timeout: NodeTimeoutOption = None,
    key_format: KeyFormatOption = None,
) -> None:
    """Run the command `inspect`, which pages.py describes."""
    with reported("inspect"), Interruption() as interruption:
        # `inspect` writes nothing. With the recovery guard, the manager would write a marker to
        # each node that has none.
        redlock = manager(
            node, node_timeout=node_timeout, key_format=key_format, recovery_guard="none"
        )
        if slots is not None:
            semaphore = interruption.run(_ask_slots(redlock, name_of(name), slots))
            if as_json:
                print_json(slots_as_dict(semaphore))
            else:
                _print(_lines_of_slots(semaphore))
            return
        info = interruption.run(_ask(redlock, name_of(name)))
    if as_json:
        print_json(as_dict(info))
    else:
        _print(_lines(info))


async def _ask(redlock: Redlock, name: str | bytes) -> LockInfo:
    async with redlock:
        return await redlock.inspect(name)


async def _ask_slots(redlock: Redlock, name: str | bytes, slots: int) -> SemaphoreInfo:
    async with redlock:
        return await redlock.semaphore(name, slots).inspect()


def _print(lines: Iterator[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _state(info: LockInfo) -> str:
    """Describe the state of a lock in words, without its name and its owner."""
    where = f"on {info.nodes} of {info.total} nodes, {life(info.remaining)}"
    if info.held and not is_lock(info):
        return f"taken by a key that is not a lock, {where}"
    if info.readers:
        return f"read by {readers(len(info.readers))} {where}"
    if info.held:
        state = "released, kept by the min_hold of" if info.over else "held by"
        return f"{state} {holder(info.token)} {where}"
    if info.offered:
        return "offered to a waiter"
    if info.token is not None:
        return f"free; no majority of the {info.total} nodes has the same token"
    return "free"


def _lines(info: LockInfo) -> Iterator[str]:
    yield f"{safe(info.resource)}: {_state(info)}"
    for reader in info.readers:
        yield f"  reader {_reader(reader)}"
    if info.held and not info.readers and is_lock(info) and info.owner is not None:
        since = datetime.fromtimestamp(info.owner.since, tz=UTC).isoformat(timespec="milliseconds")
        yield f"  owner {owner(info)}, fence {fence(info)}"
        yield f"  since {since}"
    if info.waiting:
        yield f"  {info.waiting} waiting"
    for answer in info.answers:
        if answer.foreign:
            said = f"not a lock: {answer.foreign}, {life(answer.remaining)}"
        elif answer.detail:
            said = safe(answer.detail)
        elif answer.readers:
            said = f"{readers(answer.readers)}, {life(answer.remaining)}"
        elif answer.offered:
            said = f"offered to a waiter, {life(answer.remaining)}"
        elif answer.token is None:
            said = "no key"
        else:
            over = ", over" if answer.over else ""
            said = f"{holder(answer.token)}{over}, {life(answer.remaining)}"
        yield f"  {answer.node}: {said}"


def _reader(reader: ReaderInfo) -> str:
    said = f"{holder(reader.token)}, {life(reader.remaining)}"
    if reader.owner is None:
        return said
    known = "" if reader.owner.fence is None else f", fence {reader.owner.fence}"
    return f"{said}, {safe(reader.owner.label)}{known}"


def _lines_of_slots(info: SemaphoreInfo) -> Iterator[str]:
    yield f"{safe(info.resource)}: {info.held} of {info.limit} slots held"
    if info.waiting:
        yield f"  {info.waiting} waiting"
    states = ((number, _state_of_slot(slot)) for number, slot in enumerate(info.slots, 1))
    # Neighbouring slots in the same state share a line, so that a thousand free slots need one
    # line.
    for state, group in groupby(states, key=lambda item: item[1]):
        numbers = [number for number, _ in group]
        last = "" if len(numbers) == 1 else f" to #{numbers[-1]}"
        yield f"  #{numbers[0]}{last}: {state}"
    for answer in info.slots[0].answers:
        if answer.detail and not answer.foreign:
            yield f"  {answer.node}: {safe(answer.detail)}"


def _state_of_slot(slot: LockInfo) -> str:
    known = slot.held and slot.owner is not None
    return f"{_state(slot)}, {owner(slot)}" if known else _state(slot)
