"""Floor 1: the Lua scripts, read once, and the commands that call them; it never talks to a server."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import hiredis

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FORCE_RELEASE", "MUTEX", "SCRIPTS", "Command", "LockKind", "Script"]

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


class Script:
    """One Lua file, its source and the SHA1 by which servers know it."""

    __slots__ = ("name", "sha", "source")

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = resources.files(__package__).joinpath(f"{name}.lua").read_bytes().replace(b"\r\n", b"\n")
        # Redis names scripts by SHA1 (EVALSHA); nothing here is secret.
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest().encode()


class Command:
    """One call of a script, packed once and sent as the same bytes to every node.

    Attributes:
        keys: KEYS of the script.
        args: ARGV of the script.
        packed: EVALSHA in the wire's format.
        owed_until: For a release: the instant after which the keys are gone anyway. None: not a release. A release
            that could not be delivered is owed to the node until then.
    """

    __slots__ = ("args", "keys", "owed_until", "packed", "script")

    def __init__(
        self,
        script: Script,
        keys: tuple[bytes, ...],
        args: tuple[bytes | int, ...] = (),
        owed_until: float | None = None,
    ) -> None:
        self.script = script
        self.keys = keys
        self.args = args
        self.owed_until = owed_until
        self.packed = _pack((b"EVALSHA", script.sha, len(keys), *keys, *args))

    def packed_in_full(self) -> bytes:
        """EVAL with the source, for a server that has forgotten the script."""
        return _pack((b"EVAL", self.script.source, len(self.keys), *self.keys, *self.args))


@dataclass(frozen=True, slots=True)
class LockKind:
    """A kind of lock is data: the scripts that take, keep, watch, give up and show its keys."""

    acquire: Script
    extend: Script
    watch: Script
    release: Script
    inspect: Script


MUTEX: Final = LockKind(Script("acquire"), Script("extend"), Script("watch"), Script("release"), Script("inspect"))
"""One holder at a time."""

FORCE_RELEASE: Final = Script("force_release")

SCRIPTS: Final = (MUTEX.acquire, MUTEX.extend, MUTEX.watch, MUTEX.release, MUTEX.inspect, FORCE_RELEASE)
"""Everything that a new connection loads."""
