"""Anything that a server is asked, and the calls of scripts among it; it never talks to a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aioredlock_ng._scripts.replies import garbled
from aioredlock_ng._scripts.script import pack

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._scripts.form import Form
    from aioredlock_ng._scripts.script import Script

__all__ = ["Command", "Request"]


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
                packed = pack((b"EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args))
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
        return garbled(self, reply) if record is None else record

    @property
    def step(self) -> str:
        """Name what is asked, for messages."""
        return f"the {self.script.name} script"

    def packed_in_full(self) -> bytes:
        """EVAL with the source, for a server that has forgotten the script."""
        return pack((b"EVAL", self.script.source, len(self.keys), *self.keys, *self.args))

    def _words(self) -> tuple[tuple[bytes, ...], tuple[bytes | int, ...]]:
        if self._keys is not None:
            return self._keys, self._args
        assert self.form is not None
        return self.form.words(self.blanks)
