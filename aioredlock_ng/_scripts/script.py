"""One Lua file as a script: its source with all parts in place, and its SHA1."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib import resources
from typing import TYPE_CHECKING, Any

import hiredis

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._scripts.decoding import Call

__all__ = ["Script", "pack"]

pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
"""Pack a command for the wire. The function has an annotation here, because its annotation in
hiredis is too narrow."""

_UNSENT = re.compile(rb"^ *(?:--(?! part:).*)?\n|^ +", re.MULTILINE)
"""Comments, empty lines and indentation: half of the text that each connection would send."""

_PART = re.compile(rb"^-- part: (\w+)\n", re.MULTILINE)


class Script:
    """A Lua script.

    Args:
        name: The name of the Lua file without its ending.
        read: Decodes a reply to a call of this script. Returns None if the reply does not fit the
            script. See `decoding.py`.
        package: The package whose folder `lua` contains the Lua file.

    Attributes:
        source: The source that servers get: with all parts in place, and without comments.
        sha: The SHA1 of the source in hexadecimal digits. Servers know the script by this SHA1.
    """

    __slots__ = ("name", "read", "sha", "source")

    def __init__(
        self, name: str, read: Callable[[Any, Call], Reply], package: str = __package__
    ) -> None:
        self.name = name
        self.read = read
        self.source = _source(package, name)
        # The SHA1 is only the name of the script in EVALSHA, and protects no secret.
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest().encode()

    def loading(self) -> bytes:
        """Pack a call without keys, which loads the script and changes nothing.

        The script must accept a call without keys. Scripts such as acquire_each.lua, which replace
        several calls, accept it. Unlike SCRIPT LOAD, this call needs no right beyond those of the
        script.
        """
        return pack((b"EVAL", self.source, 0, b"0", b""))


@cache
def _source(package: str, name: str) -> bytes:
    """Read a script, and replace each line "-- part: queue" by the file `lua/parts/queue.lua`."""
    text = resources.files(package).joinpath(f"lua/{name}.lua").read_bytes()
    source = _UNSENT.sub(b"", text.replace(b"\r\n", b"\n"))
    return _PART.sub(lambda part: _source(package, f"parts/{part[1].decode()}"), source)
