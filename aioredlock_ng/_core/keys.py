"""Convert lock names to Redis keys, and names to readable text."""

from __future__ import annotations

import re

from aioredlock_ng.errors import ConfigurationError

__all__ = [
    "BARE_FORMAT",
    "MAX_NAME",
    "MAX_NAMES",
    "MAX_SLOTS",
    "OWN_KEYS",
    "KeyFormat",
    "as_text",
    "message_channel",
    "name_bytes",
    "resource_name",
    "slot_in",
    "slot_key",
]

OWN_KEYS = b"aioredlock_ng:"
"""Prefix of the library's own keys, such as the marker. These keys are not locks."""

BARE_FORMAT = "{name}"
"""The default `key_format`: each lock's key is its name."""

MAX_NAME = 65_536
"""Largest number of bytes in a name. Redis allows 512 MB, but a name of 10 MB costs 40 ms per node
and command."""

MAX_NAMES = 1_000
"""Largest number of names in one lock.

One call of a script could handle some 8,000 keys, but the server serves no other client while a
script runs."""


MAX_SLOTS = 1_000
"""Largest number of slots of a semaphore. The number is limited, because one call of a script reads
the keys of all slots."""

_PATTERN = re.compile(rb"(?>[^\\\[]|\\.|\[\^?+(?>\\.|[^\]\\]-.|[^\]\\])*+\])*+", re.DOTALL)
"""A pattern of SCAN in which each bracket is closed, and each backslash has a character behind it.
"""

_SLOT = re.compile(rb"(.*)#([1-9][0-9]{0,17})", re.DOTALL)


def message_channel(manager_id: bytes) -> bytes:
    return OWN_KEYS + manager_id


class KeyFormat:
    """A `key_format`, split once around `{name}`.

    A key is the name between the two parts, so braces, CRLF and NUL in a name are ordinary text.
    """

    __slots__ = ("_prefix", "_suffix")

    def __init__(self, key_format: str) -> None:
        if key_format.count("{name}") != 1:
            raise ConfigurationError(
                "key_format must be a str that contains '{name}' exactly once, like 'lock:{name}';"
                f" got {key_format!r}"
            )
        prefix, _, suffix = key_format.partition("{name}")
        try:
            self._prefix, self._suffix = prefix.encode(), suffix.encode()
        except UnicodeEncodeError:
            raise ConfigurationError(
                f"key_format {key_format!r} has a lone surrogate and cannot be UTF-8;"
                " leave that character out"
            ) from None
        if self._prefix.startswith(OWN_KEYS):
            raise ConfigurationError(
                f"key_format {key_format!r} begins with {as_text(OWN_KEYS)!r},"
                " which this library keeps for itself; choose another prefix"
            )

    def key(self, name: str | bytes, called: str = "lock name") -> bytes:
        """Return the Redis key of a name. Error messages call the name `called`.

        Raises:
            ConfigurationError: Raised if the name is not str or bytes, is empty, exceeds `MAX_NAME`
                bytes, cannot be encoded as UTF-8, or would be one of the library's own keys.
        """
        raw = name_bytes(called, name)
        if len(raw) > MAX_NAME:
            raise ConfigurationError(
                f"{called} has {len(raw):,} bytes, more than {MAX_NAME:,};"
                " use a hash of it as the name"
            )
        key = self._prefix + raw + self._suffix
        if key.startswith(OWN_KEYS):
            raise ConfigurationError(
                f"the key {key!r} begins with {OWN_KEYS!r}, which this library keeps for itself;"
                f" choose another {called}"
            )
        return key

    def matching(self, pattern: str | bytes) -> bytes:
        """Return a pattern for SCAN that finds the keys of all names that match `pattern`.

        The text around `{name}` is matched literally.

        Raises:
            ConfigurationError: Raised if `key` would refuse the pattern as a name. Also raised if a
                bracket is open or the last character is a backslash, because the suffix would then
                be a part of the bracket, or not be matched literally.
        """
        raw = self._between(self.key(pattern, "pattern"))
        if _PATTERN.fullmatch(raw) is None:
            raise ConfigurationError(
                f"pattern {as_text(raw)!r} has an open '[' or ends in a backslash; close the"
                " bracket, or write a backslash before each of these characters"
            )
        return _plain(self._prefix) + raw + _plain(self._suffix)

    def has_name(self, key: bytes) -> bool:
        """Return True if a key that `matching` found has a name, which is never empty."""
        return len(key) > len(self._prefix) + len(self._suffix)

    def name(self, key: bytes) -> str:
        """Return the name in a key of this format, as readable text."""
        return as_text(self._between(key))

    def _between(self, key: bytes) -> bytes:
        return key[len(self._prefix) : len(key) - len(self._suffix)]


def slot_key(key: bytes, number: int) -> bytes:
    """Return the key of a semaphore's slot. The slots are numbered from 1."""
    return b"%b#%d" % (key, number)


def slot_in(key: bytes) -> tuple[bytes, int] | None:
    """Return the semaphore's key and the slot's number; None if `key` is not the key of a slot."""
    found = _SLOT.fullmatch(key)
    return None if found is None else (found[1], int(found[2]))


def name_bytes(what: str, name: object) -> bytes:
    """Return a given name as bytes. Error messages use `what`, such as "lock name".

    Raises:
        ConfigurationError: Raised if the name is not str or bytes, is empty, or cannot be encoded
            as UTF-8.
    """
    if isinstance(name, str):
        try:
            raw = name.encode()
        except UnicodeEncodeError:
            raise ConfigurationError(
                f"{what} {name!r} has a lone surrogate and cannot be UTF-8; pass bytes instead"
            ) from None
    elif isinstance(name, (bytes, bytearray, memoryview)):
        raw = bytes(name)
    else:
        raise ConfigurationError(
            f"{what} must be str or bytes, not {type(name).__name__}; convert it first"
        )
    if not raw:
        raise ConfigurationError(f"{what} must not be empty; name the resource that is protected")
    return raw


def _plain(text: bytes) -> bytes:
    return re.sub(rb"[\\*?\[]", rb"\\\g<0>", text)


def as_text(raw: bytes) -> str:
    """Return a name or a token as readable text. Bytes that are not UTF-8 are escaped."""
    return raw.decode("utf-8", "backslashreplace")


def resource_name(names: tuple[str | bytes, ...]) -> str:
    """Return the names as one readable str, for messages and `.resource`."""
    if len(names) == 1 and isinstance(names[0], str):
        return names[0]
    return ", ".join(n if isinstance(n, str) else as_text(bytes(n)) for n in names)
