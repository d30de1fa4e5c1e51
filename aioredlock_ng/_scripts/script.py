"""A Lua file as a script: its source, read once, and the SHA1 by which servers know it; no I/O with servers."""

from __future__ import annotations

import re
from hashlib import sha1
from importlib import resources
from typing import TYPE_CHECKING, Any

import hiredis

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._scripts.replies import Call

__all__ = ["Script", "pack"]

pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
"""Pack a command in the wire's format. The stubs of hiredis know tuples of one item only."""

_PART = re.compile(rb"^ *-- part: (\w+)\n", re.MULTILINE)


class Script:
    """One Lua file, its source, the SHA1 by which servers know it, and the decoder of its replies.

    Args:
        name: The file's name without its ending.
        read: Decodes a reply to a call; None where it does not fit. See `replies.py`.
        package: The package that contains it. New connections load the scripts of this package only.
    """

    __slots__ = ("name", "read", "sha", "source")

    def __init__(
        self, name: str, read: Callable[[Any, Call], Reply], package: str = __package__
    ) -> None:
        self.name = name
        self.read = read
        self.source = _source(package, name)
        # Redis names scripts by SHA1 (EVALSHA); nothing here is secret.
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest().encode()

    def loading(self) -> bytes:
        """Pack a call about no key, which does nothing: by that, a server that has forgotten the script learns it again.

        For those about several calls. It needs no right but EVAL, where SCRIPT LOAD does.
        """
        return pack((b"EVAL", self.source, 0, b"0", b""))


def _source(package: str, name: str) -> bytes:
    """Read a script; each of its lines "-- part: queue" is replaced by the file `parts/queue.lua`."""
    source = resources.files(package).joinpath(f"{name}.lua").read_bytes().replace(b"\r\n", b"\n")
    return _PART.sub(lambda part: _source(package, f"parts/{part[1].decode()}"), source)
