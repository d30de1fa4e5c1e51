"""Try the requests that write, read and delete the labels of owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioredlock_ng._core.owners import pack_owner
from aioredlock_ng._doctor.rights import COMMANDS_OF_LABELS
from aioredlock_ng._scripts import Request
from aioredlock_ng._scripts.exclusive_kinds import MUTEX
from aioredlock_ng._scripts.reader_kind import read_side

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._doctor.interview import Interview

__all__ = ["ask_for_labels", "deleting_labels"]

Answer = tuple[str, "Reply"]
"""The name of a command or script, and the server's reply."""

_READERS: Final = read_side(MUTEX)


def deleting_labels(key: bytes, token: bytes) -> Request:
    """Return the request that deletes the labels of the doctor's lock."""
    return Request.of("DEL", *_labels(key, token))


async def ask_for_labels(
    interview: Interview, key: bytes, token: bytes, ttl: int
) -> tuple[list[Answer], list[Answer]]:
    """Send the commands and the scripts that access the keys of labels.

    `ttl` is the ttl of the lock and of its labels in milliseconds.

    Returns:
        Two lists: the answers to the commands, and the answers to the scripts.

    Raises:
        NoAnswer: No answer came in time, or the connection was lost.
    """
    label, text = MUTEX.label_key(key, token), pack_owner(token, None, 0, "doctor")
    scripts = [
        (command.script.name, await interview.call(f"script {command.script.name}", command))
        for command in (
            MUTEX.acquiring((key,), (), token, b"%d" % ttl, 0),
            MUTEX.watching((key,), (token,), ((label,), (ttl, text))),
            # `Election.watch()` tracks the key of a label instead of a lock's key. So this request
            # is tried, too.
            MUTEX.watching((label,), (b"-",)),
            MUTEX.inspecting((key,), (label,), queues=True),
            MUTEX.releasing((key,), token, None, (label,)),
        )
    ]
    commands = [
        (name, await interview.ask(name, *arguments(each, text, ttl)))
        for each in _labels(key, token)
        for name, arguments in COMMANDS_OF_LABELS.items()
    ]
    return commands, scripts


def _labels(key: bytes, token: bytes) -> tuple[bytes, bytes]:
    """Return two keys: the key of a writer's label, and the key of a reader's label."""
    return MUTEX.label_key(key, token), _READERS.label_key(key, token)
