"""Calls about one key that differ in few words: packed by one formatting, and joined into one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._scripts.script import pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._scripts.script import Script

__all__ = ["Form"]

_BLANK = b"\0blank\0"


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
            self._handing = _format(
                (b"EVALSHA", hand_over.sha, keys, *words[:keys], *head, None, *varying)
            )

    def fill(self, blanks: tuple[bytes, ...]) -> bytes:
        """Pack one call, in which these words vary: by one formatting, a fifth of the time that words take."""
        return self._format % tuple([part for word in blanks for part in (len(word), word)])

    def fill_hand_over(self, given: tuple[bytes, ...], taking: tuple[bytes, ...]) -> bytes:
        """Pack a release and the call behind it as one of `hand_over`, as `fill` does."""
        words = (taking[0], given[1], *taking[1:])
        return self._handing % tuple([part for word in words for part in (len(word), word)])

    def fill_all(self, script: Script, calls: Sequence[tuple[bytes, ...]]) -> bytes:
        """Pack several calls as one of `each`; or, by turns, releases and the calls behind them as one of `hand_over`."""
        keys, args = self.together(script, calls)
        return pack((b"EVALSHA", script.sha, len(keys), *keys, *args))

    def together(
        self, script: Script, calls: Sequence[tuple[bytes, ...]]
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """KEYS and ARGV of one call of `each` or `hand_over`."""
        if script is self.hand_over:
            calls = [
                (taking[0], given[1], *taking[1:])
                for given, taking in zip(calls[::2], calls[1::2], strict=True)
            ]
        others = [word for word in self._words[1 : self._keys] if word is not None]
        keys = [call[0] for call in calls]
        varying = [word for call in calls for word in call[1:]]
        return (*keys, *others), (*self._head, *varying)

    def words(self, blanks: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """KEYS and ARGV of one call."""
        left = iter(blanks)
        words = tuple([next(left) if word is None else word for word in self._words])
        return words[: self._keys], words[self._keys :]


def _format(words: tuple[bytes | int | None, ...]) -> bytes:
    """What packs these words when the lengths of those that vary (None) and they themselves are put in."""
    packed = pack(tuple([_BLANK if word is None else word for word in words]))
    blank = b"$%d\r\n%b\r\n" % (len(_BLANK), _BLANK)
    return packed.replace(b"%", b"%%").replace(blank, b"$%d\r\n%b\r\n")
