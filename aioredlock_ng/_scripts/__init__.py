"""Floor 1: the Lua scripts, read once, and the commands that call them; it never talks to a server."""

from __future__ import annotations

from hashlib import sha1
from importlib import resources
from typing import TYPE_CHECKING, Any

import hiredis

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Command", "Form", "Request", "Script"]

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command

_BLANK = b"\0blank\0"


class Script:
    """One Lua file, its source and the SHA1 by which servers know it."""

    __slots__ = ("name", "sha", "source")

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = resources.files(__package__).joinpath(f"{name}.lua").read_bytes().replace(b"\r\n", b"\n")
        # Redis names scripts by SHA1 (EVALSHA); nothing here is secret.
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest().encode()


class Form:
    """A call of a script in which only some words vary: packed by one formatting, a fifth of the time that words take.

    Args:
        script: What is called.
        keys: How many of the words are keys.
        words: The keys and arguments; None where it varies.
    """

    __slots__ = ("_format", "script")

    def __init__(self, script: Script, keys: int, words: tuple[bytes | None, ...]) -> None:
        self.script = script
        packed = _pack((b"EVALSHA", script.sha, keys, *(_BLANK if word is None else word for word in words)))
        blank = b"$%d\r\n%b\r\n" % (len(_BLANK), _BLANK)
        self._format = packed.replace(b"%", b"%%").replace(blank, b"$%d\r\n%b\r\n")

    def fill(self, *blanks: bytes | int) -> bytes:
        """Pack it; `blanks` are the length and the bytes of each word that varies, in turn."""
        return self._format % blanks


class Request:
    """Anything that a server is asked.

    Attributes:
        packed: In the wire's format.
    """

    __slots__ = ("packed",)

    owed_until: float | None = None

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys that it is about."""
        return ()

    def packed_in_full(self) -> bytes:
        """For a server that has forgotten the script."""
        return self.packed


class Command(Request):
    """One call of a script, packed once and sent as the same bytes to every node.

    Args:
        script: What is called.
        keys: KEYS of the script; None where they and `args` are in `packed` alone, to be read from there when they are asked
            for, which is seldom: with a thousand callers at once, two tuples less for each are felt.
        args: ARGV of the script.
        owed_until: See below.
        packed: EVALSHA in the wire's format, where it is made already.

    Attributes:
        packed: EVALSHA in the wire's format.
        owed_until: For a release: the instant after which the keys are gone anyway. None: not a release. A release
            that could not be delivered is owed to the node until then.
    """

    __slots__ = ("_args", "_keys", "owed_until", "script")

    def __init__(
        self,
        script: Script,
        keys: tuple[bytes, ...] | None,
        args: tuple[bytes | int, ...] = (),
        owed_until: float | None = None,
        packed: bytes | None = None,
    ) -> None:
        self.script = script
        self._keys = keys
        self._args = args
        self.owed_until = owed_until
        self.packed = _pack((b"EVALSHA", script.sha, len(keys or ()), *(keys or ()), *args)) if packed is None else packed

    @property
    def keys(self) -> tuple[bytes, ...]:
        """KEYS of the script."""
        return self._words()[0]

    @property
    def args(self) -> tuple[bytes | int, ...]:
        """ARGV of the script."""
        return self._words()[1]

    def packed_in_full(self) -> bytes:
        """EVAL with the source, for a server that has forgotten the script."""
        return _pack((b"EVAL", self.script.source, len(self.keys), *self.keys, *self.args))

    def _words(self) -> tuple[tuple[bytes, ...], tuple[bytes | int, ...]]:
        if self._keys is None:
            reader = hiredis.Reader()
            reader.feed(self.packed)
            _, _, count, *words = reader.gets()
            self._keys, self._args = tuple(words[: int(count)]), tuple(words[int(count) :])
        return self._keys, self._args
