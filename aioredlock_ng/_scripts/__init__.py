"""Floor 1: the Lua scripts, read once, and the commands that call them; it never talks to a server."""

from __future__ import annotations

import re
from hashlib import sha1
from importlib import resources
from typing import TYPE_CHECKING, Any, cast

import hiredis

from aioredlock_ng._scripts.replies import garbled as _garbled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._scripts.replies import Call

__all__ = ["Command", "Form", "Request", "Script"]

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command

_BLANK = b"\0blank\0"

_PART = re.compile(rb"^ *-- part: (\w+)\n", re.MULTILINE)


class Script:
    """One Lua file, its source, the SHA1 by which servers know it, and the decoder of its replies.

    Args:
        name: The file's name without its ending.
        read: Decodes a reply to a call; None where it does not fit. See `replies.py`.
        package: The package that contains it. New connections load the scripts of this package only.
    """

    __slots__ = ("name", "read", "sha", "source")

    def __init__(self, name: str, read: Callable[[Any, Call], Reply], package: str = __package__) -> None:
        self.name = name
        self.read = read
        self.source = _source(package, name)
        # Redis names scripts by SHA1 (EVALSHA); nothing here is secret.
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest().encode()

    def loading(self) -> bytes:
        """Pack a call about no key, which does nothing: by that, a server that has forgotten the script learns it again.

        For those about several calls. It needs no right but EVAL, where SCRIPT LOAD does.
        """
        return _pack((b"EVAL", self.source, 0, b"0", b""))


def _source(package: str, name: str) -> bytes:
    """Read a script; each of its lines "-- part: queue" is replaced by the file `parts/queue.lua`."""
    source = resources.files(package).joinpath(f"{name}.lua").read_bytes().replace(b"\r\n", b"\n")
    return _PART.sub(lambda part: _source(package, f"parts/{part[1].decode()}"), source)


class Form:
    """A call of a script about one key in which only some words vary, and the script that does the same for several keys.

    Args:
        script: See below.
        keys: How many of the words are keys.
        words: The keys and arguments; None where it varies. The first is the key.
        each: See below.
        head: ARGV of that script that is there once.
        hand_over: See below.

    Attributes:
        script: What is called.
        each: What does the same for several calls. Its KEYS: the key of each, then the other keys; ARGV: `head`, then what
            else varies of each.
        hand_over: What does so for several keys that are released right before; the token that is released comes before
            what varies. None: nothing does.
    """

    __slots__ = ("_format", "_handing", "_head", "_keys", "_words", "each", "hand_over", "script")

    def __init__(
        self,
        script: Script,
        keys: int,
        words: tuple[bytes | None, ...],
        each: Script,
        head: tuple[bytes, ...] = (),
        hand_over: Script | None = None,
    ) -> None:
        self.script = script
        self._keys, self._words = keys, words
        self.each, self._head = each, head
        self.hand_over = hand_over
        self._format = _format((b"EVALSHA", script.sha, keys, *words))
        self._handing = b""
        if hand_over is not None:
            varying = (None,) * words[1:].count(None)
            self._handing = _format((b"EVALSHA", hand_over.sha, keys, *words[:keys], *head, None, *varying))

    def fill(self, blanks: tuple[bytes, ...]) -> bytes:
        """Pack one call, in which these words vary: by one formatting, a fifth of the time that words take."""
        return self._format % tuple([part for word in blanks for part in (len(word), word)])

    def fill_hand_over(self, given: tuple[bytes, ...], taking: tuple[bytes, ...]) -> bytes:
        """Pack a release and the call behind it as one of `hand_over`, as `fill` does."""
        words = (taking[0], given[1], *taking[1:])
        return self._handing % tuple([part for word in words for part in (len(word), word)])

    def fill_all(self, script: Script, calls: Sequence[tuple[bytes, ...]]) -> bytes:
        """Pack several calls as one of `each`; or, by turns, releases and the calls behind them as one of `hand_over`."""
        if script is self.hand_over:
            calls = [(taking[0], given[1], *taking[1:]) for given, taking in zip(calls[::2], calls[1::2], strict=True)]
        others = self._words[1 : self._keys]
        keys = [call[0] for call in calls]
        varying = [word for call in calls for word in call[1:]]
        return _pack((b"EVALSHA", script.sha, len(keys) + len(others), *keys, *others, *self._head, *varying))

    def words(self, blanks: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """KEYS and ARGV of one call."""
        left = iter(blanks)
        words = tuple([next(left) if word is None else word for word in self._words])
        return words[: self._keys], words[self._keys :]


def _format(words: tuple[bytes | int | None, ...]) -> bytes:
    """What packs these words when the lengths of those that vary (None) and they themselves are put in."""
    packed = _pack(tuple([_BLANK if word is None else word for word in words]))
    blank = b"$%d\r\n%b\r\n" % (len(_BLANK), _BLANK)
    return packed.replace(b"%", b"%%").replace(blank, b"$%d\r\n%b\r\n")


class Request:
    """Anything that a server is asked; see `Command` for the attributes."""

    __slots__ = ("_packed",)

    owed_until: float | None = None
    form: Form | None = None
    blanks: tuple[bytes, ...] = ()
    tracked: bool = False

    def __init__(self, packed: bytes | None) -> None:
        self._packed = packed

    @property
    def packed(self) -> bytes:
        """In the wire's format."""
        assert self._packed is not None
        return self._packed

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys that it is about."""
        return ()

    def read(self, reply: Any) -> Reply:
        """Decode a reply. The asker of a plain request decodes it itself."""
        return cast("Reply", reply)

    @property
    def step(self) -> str:
        """Name what is asked, for messages."""
        return "a command"

    def packed_in_full(self) -> bytes:
        """For a server that has forgotten the script."""
        return self.packed


class Command(Request):
    """One call of a script, packed once and sent as the same bytes to every node.

    Args:
        script: What is called.
        keys: KEYS of the script; None where there is a form.
        args: ARGV of the script.
        owed_until: See below.
        form: Of a call about one key: what it has in common with others. Those of one form can be sent as one.
        blanks: What varies in it.
        tracked: See below. Such a command has no form.

    Attributes:
        tracked: The server notifies this connection once when a key that the script reads changes. One's own write to
            the key ends that, so a script that writes reads its keys again at the end. Redis 6.2 and 7.0 track all KEYS
            at each read.
        owed_until: For a release: the instant until which it is sent again where it was refused; the keys that the server
            knew of are gone then. None: not a release. One that could not be delivered is owed to the node without end.
    """

    __slots__ = ("_args", "_keys", "blanks", "form", "owed_until", "script", "tracked")

    def __init__(
        self,
        script: Script,
        keys: tuple[bytes, ...] | None,
        args: tuple[bytes | int, ...] = (),
        owed_until: float | None = None,
        form: Form | None = None,
        blanks: tuple[bytes, ...] = (),
        *,
        tracked: bool = False,
    ) -> None:
        self._packed = None
        self.script = script
        self._keys = keys
        self._args = args
        self.owed_until = owed_until
        self.form = form
        self.blanks = blanks
        self.tracked = tracked

    @property
    def packed(self) -> bytes:
        """EVALSHA in the wire's format; made when it is first asked for, which is never where it is sent with others."""
        packed = self._packed
        if packed is None:
            if self.form is not None:
                packed = self.form.fill(self.blanks)
            else:
                packed = _pack((b"EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args))
            self._packed = packed
        return packed

    @property
    def keys(self) -> tuple[bytes, ...]:
        """KEYS of the script."""
        return self._words()[0]

    @property
    def args(self) -> tuple[bytes | int, ...]:
        """ARGV of the script."""
        return self._words()[1]

    def read(self, reply: Any) -> Reply:
        """Decode a reply; a `Garbled` where the script gives no such reply to this call."""
        record = self.script.read(reply, self)
        return _garbled(self, reply) if record is None else record

    @property
    def step(self) -> str:
        """Name what is asked, for messages."""
        return f"the {self.script.name} script"

    def packed_in_full(self) -> bytes:
        """EVAL with the source, for a server that has forgotten the script."""
        return _pack((b"EVAL", self.script.source, len(self.keys), *self.keys, *self.args))

    def _words(self) -> tuple[tuple[bytes, ...], tuple[bytes | int, ...]]:
        if self._keys is not None:
            return self._keys, self._args
        assert self.form is not None
        return self.form.words(self.blanks)
