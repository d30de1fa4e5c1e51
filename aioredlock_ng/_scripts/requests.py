"""Requests to a server: plain commands, and calls of scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aioredlock_ng._scripts.decoding import garbled
from aioredlock_ng._scripts.script import pack

if TYPE_CHECKING:
    from aioredlock_ng._core.votes import Reply
    from aioredlock_ng._scripts.form import Form
    from aioredlock_ng._scripts.script import Script

__all__ = ["Command", "Request"]


class Request:
    """A plain command for a server. `Command` describes the attributes."""

    __slots__ = ("_packed",)

    owed_until: float | None = None
    form: Form | None = None
    blanks: tuple[bytes, ...] = ()
    tracked: bool = False

    def __init__(self, packed: bytes | None) -> None:
        self._packed = packed

    @classmethod
    def of(cls, *words: Any) -> Request:
        """Return the plain command that consists of these words."""
        return Request(pack(words))

    @property
    def packed(self) -> bytes:
        assert self._packed is not None
        return self._packed

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Return no keys, because it is unknown which words of a plain command are keys."""
        return ()

    def read(self, reply: Any) -> Reply:
        """Return the reply as it is. The caller of a plain command decodes the reply."""
        return cast("Reply", reply)

    @property
    def step(self) -> str:
        """Name the request, for messages."""
        return "a command"

    def packed_in_full(self) -> bytes:
        """Return the same bytes as `packed`, because a plain command needs no script."""
        return self.packed


class Command(Request):
    """One call of a script. The call is packed once for all nodes.

    Args:
        keys: KEYS of the script. None if `form` is given.
        owed_until: For a release, the instant by which its keys on the server have expired. Until
            then, a release that the server refused is sent again. A release that could not be
            delivered is sent again even later. A command to leave the queues counts as a release.
            None: the command is sent only once.
        form: The template of a call about one key; see `Form`. Commands with the same form can be
            merged into one call.
        blanks: The words that fill the variable places of `form`.
        tracked: True to have the server track the keys that the script reads. When one of these
            keys changes, the server notifies this connection once. If this connection writes such a
            key itself, the tracking ends without a notification. A tracked command has no form.
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
        """Return the bytes of the call, as an EVALSHA command.

        The bytes are made at the first access, because a command that is merged with others needs
        none.
        """
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
        return self._words()[0]

    @property
    def args(self) -> tuple[bytes | int, ...]:
        return self._words()[1]

    def read(self, reply: Any) -> Reply:
        """Decode a reply into a record, or into a `Garbled` if it does not fit the script."""
        record = self.script.read(reply, self)
        return garbled(self, reply) if record is None else record

    @property
    def step(self) -> str:
        return f"the {self.script.name} script"

    def packed_in_full(self) -> bytes:
        """Return the call as EVAL with the source, for a server that has forgotten the script."""
        return pack((b"EVAL", self.script.source, len(self.keys), *self.keys, *self.args))

    def _words(self) -> tuple[tuple[bytes, ...], tuple[bytes | int, ...]]:
        if self._keys is not None:
            return self._keys, self._args
        assert self.form is not None
        return self.form.words(self.blanks)
