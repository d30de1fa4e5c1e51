"""Forms: templates of script calls about one key, in which only a few words vary.

The words that vary are the blanks. A form packs a call by filling in the blanks. Several calls with
the same form can be merged into one call of another script, which does the same for several keys.
Several hand-overs can be merged, too. A hand-over is a release with an acquire of the same key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioredlock_ng._scripts.script import pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioredlock_ng._scripts.script import Script

__all__ = ["Form"]

_BLANK = b"\0blank\0"


class Form:
    """The template of a call about one key, in which only some words vary.

    Args:
        script: The script that is called.
        keys: How many of `words` are keys.
        words: KEYS and ARGV of the call. The first word is the key. None stands for a word that
            varies.
        each: The script that does the same for several keys. Its KEYS are the key of each call, and
            then the other keys of `words`. Its ARGV are `head`, and then the varying words of each
            call, without the key.
        head: The first words of ARGV of `each` and of `hand_over`, which apply to all calls.
        hand_over: The script that releases several keys and acquires them again; None if there is
            no such script. Its KEYS and ARGV are those of `each`, but the token to release comes
            before the varying words of each call.
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
        """Pack one call with `blanks` as the words that vary.

        Formatting a template takes less time than packing word by word.
        """
        return self._format % tuple([part for word in blanks for part in (len(word), word)])

    def fill_hand_over(self, given: tuple[bytes, ...], taking: tuple[bytes, ...]) -> bytes:
        """Pack a release and the acquire that follows it as one call of `hand_over`.

        The arguments are the blanks of the release and the blanks of the acquire.
        """
        words = (taking[0], given[1], *taking[1:])
        return self._handing % tuple([part for word in words for part in (len(word), word)])

    def fill_all(self, script: Script, calls: Sequence[tuple[bytes, ...]]) -> bytes:
        keys, args = self.together(script, calls)
        return pack((b"EVALSHA", script.sha, len(keys), *keys, *args))

    def together(
        self, script: Script, calls: Sequence[tuple[bytes, ...]]
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Return KEYS and ARGV of one call of `script` that replaces several calls.

        Args:
            script: `each` or `hand_over`.
            calls: The blanks of each call, in order. If `script` is `hand_over`, the blanks of each
                release are followed by the blanks of the acquire of the same key.
        """
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
        left = iter(blanks)
        words = tuple([next(left) if word is None else word for word in self._words])
        return words[: self._keys], words[self._keys :]


def _format(words: tuple[bytes | int | None, ...]) -> bytes:
    """Return the packed words as a template for the operator `%`.

    In the place of each None, the template has two fields: the length of a word, and the word.
    """
    packed = pack(tuple([_BLANK if word is None else word for word in words]))
    blank = b"$%d\r\n%b\r\n" % (len(_BLANK), _BLANK)
    return packed.replace(b"%", b"%%").replace(blank, b"$%d\r\n%b\r\n")
