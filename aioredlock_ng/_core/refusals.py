"""Find out from a server's error message why the server refused a request.

The words of the message differ between versions of the server.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "CHANNELS",
    "DISTINCTIVE",
    "KEYS",
    "cure_of",
    "harmless",
    "is_busy",
    "is_of_replica",
    "is_unknown_command",
    "missing_right",
    "unquoted",
]

KEYS: Final = "keys"
"""The result of `missing_right` if the user may not access the key."""

CHANNELS: Final = "channels"
"""The result of `missing_right` if the user may not use the channel."""

DISTINCTIVE: Final = (
    r"\b(?:ACL|ASK|BUSY|CLUSTERDOWN|ERR|EXECABORT|LOADING|MASTERDOWN|MISCONF|MOVED|NOAUTH|NOPERM"
    r"|NOREPLICAS|NOSCRIPT|NOTALOCK|OOM|READONLY|WRONGPASS|WRONGTYPE)\b"
    r"|permissions? to run the '|' command\b"
    r"|access (?:a key|one of the keys|at least one of the keys)"
    r"|unknown command"
    r"|access (?:a channel|one of the channels)|publish to the channel mentioned"
    r"|can't run this command or subcommand|ACL failure in script|Error running script|@user_script"
)
"""Pattern of the words that this module and `votes` look for in refusals.

These words are never redacted, even if a password is one of them."""

_OF_REPLICA = re.compile(
    r"(ERR Error running script .*|@user_script: ?\d+: )?-?READONLY |MASTERDOWN "
)
"""A replica's refusal to write, either plain or with the words that Redis 6.2 adds in scripts, or
the refusal of a replica that has lost its primary."""

_NAMED = re.compile(r"permissions? to run the '([^']+)' command")
_KEYS = re.compile(r"access (?:a key|one of the keys|at least one of the keys)")
_CHANNELS = re.compile(r"access (?:a channel|one of the channels)|publish to the channel mentioned")
_PLACE = re.compile(
    r"^(?:ERR Error running script \(call to f_\w+\): @user_script:\d+: )?@user_script: ?\d+: "
    r"|\s*script: (\w+, )?on @user_script:\d+\.$"
)
"""The words that servers add to the refusal of a script. Redis 6.2 puts them before the refusal,
later versions and Valkey after it."""

_QUOTED = ", with args beginning with"
"""The words with which servers introduce the arguments of an unknown command."""

_TOKEN = re.compile(r"\b([0-9a-f]{6})[0-9a-f]{26}\b")
"""A token of this library, or a word that looks like a token."""

_UNNAMED = ("NOPERM", "ACL failure in script", "can't run this command or subcommand")

_WHOLE = {"client": "client|tracking", "config": "config|get", "script": "script|load"}
"""The right that `missing_right` returns for each of these commands.

In a refusal, Redis 6.2 names only the command, and not its subcommand."""

_CURES: Final = (
    (
        "OOM ",
        "give the server more memory, or move other data away; a lock needs about a hundred bytes",
    ),
    (
        "MISCONF",
        "the server cannot save its data, so it refuses writes: check its disk and its log",
    ),
    ("READONLY", "name the primary instead, or end the replication: REPLICAOF NO ONE"),
    ("NOREPLICAS", "a lock server needs no replicas: set min-replicas-to-write to 0"),
    ("BUSY", "a script or function on the server does not end; try SCRIPT KILL or FUNCTION KILL"),
    ("LOADING", "the server is loading its data; run the doctor again when it is done"),
    (
        "unknown command",
        (
            "the server, or a proxy before it, has no such command:"
            " use a plain Redis 6.2 or newer, or Valkey"
        ),
    ),
)


def missing_right(words: str) -> str | None:
    """Return the ACL right that is missing according to the words of a refusal.

    Returns:
        The command's name as in `ACL SETUSER … +name`, or `KEYS`, or `CHANNELS`. "" if the server
        does not name the missing right. Redis before 7.2 names no right for a command inside a
        script. None if the refusal has another reason.
    """
    if named := _NAMED.search(words):
        return _WHOLE.get(named[1], named[1])
    if _KEYS.search(words):
        return KEYS
    if _CHANNELS.search(words):
        return CHANNELS
    return "" if any(mark in words for mark in _UNNAMED) else None


def is_of_replica(words: str) -> bool:
    """Return True if the server refuses the request because the server is a replica."""
    return _OF_REPLICA.match(words) is not None


def is_unknown_command(words: str) -> bool:
    return "unknown command" in words.lower()


def is_busy(words: str) -> bool:
    """True if the server refuses most requests for now, because it runs a script or loads data."""
    return words.startswith(("BUSY ", "LOADING "))


def cure_of(words: str) -> str | None:
    """Return a remedy for a refusal that does not concern rights; None for unknown words."""
    return next((cure for mark, cure in _CURES if mark in words), None)


def unquoted(words: str) -> str:
    """Return the words without the arguments that a server quotes. Tokens are shortened."""
    return _TOKEN.sub(r"\1…", words.partition(_QUOTED)[0])


def harmless(words: str) -> str:
    """Return the words as one short line, without quoted arguments and script line numbers."""
    told = _PLACE.sub("", unquoted(words))
    return "".join(char if char.isprintable() else " " for char in told).strip()[:300]
