"""Read settings from environment variables, for `Redlock.from_env` and the command line."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["PREFIX", "naming_variables", "settings_from", "slips"]

PREFIX: Final = "AIOREDLOCK_NG_"

_NUMBERS: Final = (
    "ttl",
    "node_timeout",
    "drift_factor",
    "min_validity",
    "max_ttl",
    "connect_timeout",
    "close_timeout",
)

_WORDS: Final[dict[str, dict[str, bool | str | None]]] = {
    "fencing": {"true": True, "false": False},
    "recovery_guard": {"auto": "auto", "strict": "strict", "none": None},
}
"""Options that accept only certain words, and the value that each word stands for."""

_KNOWN: Final = tuple(name.upper() for name in ("nodes", *_NUMBERS, *_WORDS, "owner", "key_format"))

_NO_SETTINGS: Final = frozenset({"NAME", "TOKEN", "FENCE", "SLOT", "REDIS_SERVER"})
"""Variables that are not settings.

`REDIS_SERVER` names the server program for `aioredlock_ng.testing`. `aioredlock-ng run` sets the
other variables for its child.
"""

_log = logging.getLogger("aioredlock_ng")


def settings_from(
    environ: Mapping[str, str], given: Mapping[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """Return the URLs of the nodes and the options that the environment sets.

    The options in `given` override the environment, so the result does not contain them. The log
    warns of a variable whose name is similar to the name of a setting, because the name may be
    misspelt.

    Raises:
        ConfigurationError: There are no nodes, or a value is invalid.
    """
    if not isinstance(environ, Mapping):
        raise ConfigurationError(
            f"environ must be a mapping of texts, like os.environ, not {type(environ).__name__}"
        )
    for slip in slips(environ):
        _log.warning("%s", slip)
    environ = {
        name: _text(name, environ[name])
        for name in (PREFIX + known for known in _KNOWN)
        if name in environ
    }
    urls = [url.strip() for url in environ.get(f"{PREFIX}NODES", "").split(",") if url.strip()]
    if not urls:
        raise ConfigurationError(
            f"{PREFIX}NODES is not set; set it to the nodes' URLs, like"
            " redis://10.0.0.1,redis://10.0.0.2"
        )
    if pieces := [number for number, url in enumerate(urls, 1) if "://" not in url]:
        # The entry may be a part of a password with a comma, so the error does not quote it.
        raise ConfigurationError(
            f"{PREFIX}NODES: entry {pieces[0]} of {len(urls)} is not a URL; begin each entry"
            " with redis://, rediss:// or unix://, and write a comma inside a user name or"
            " password as %2C"
        )
    options: dict[str, Any] = {}
    for name in _NUMBERS:
        text = environ.get(PREFIX + name.upper())
        if text is not None and name not in given:
            try:
                options[name] = float(text)
            except ValueError:
                unit = "" if name == "drift_factor" else " of seconds"
                raise ConfigurationError(
                    f"{PREFIX}{name.upper()} must be a number{unit}, got {text!r}"
                ) from None
    for name, values in _WORDS.items():
        word = environ.get(PREFIX + name.upper())
        if word is not None and name not in given:
            if word.lower() not in values:
                raise ConfigurationError(
                    f"{PREFIX}{name.upper()} must be one of {', '.join(values)}, got {word!r}"
                )
            options[name] = values[word.lower()]
    if f"{PREFIX}OWNER" in environ and "owner" not in given:
        owner = environ[f"{PREFIX}OWNER"]
        options["owner"] = {"true": True, "false": False}.get(owner.lower(), owner)
    if f"{PREFIX}KEY_FORMAT" in environ and "key_format" not in given:
        options["key_format"] = environ[f"{PREFIX}KEY_FORMAT"]
    return urls, options


@contextmanager
def naming_variables(*options: str) -> Iterator[None]:
    """Put the names of variables before the message of a `ConfigurationError` from the block.

    A variable is named if the message contains the name of its option. An error about one node
    begins with the word "node".
    """
    try:
        yield
    except ConfigurationError as error:
        named = [
            PREFIX + option.upper()
            for option in options
            if re.search(r"^nodes?\b" if option == "nodes" else rf"\b{option}\b", str(error))
        ]
        if not named:
            raise
        raise ConfigurationError(f"{', '.join(named)}: {error}") from None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(
            f"{name} must be a str, as in os.environ, not {type(value).__name__}"
        )
    return value


def slips(environ: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each variable whose name is similar to the name of a setting."""
    names = (str(name).removeprefix(PREFIX) for name in environ if str(name).startswith(PREFIX))
    for name in names:
        if name not in _KNOWN and name not in _NO_SETTINGS:
            from difflib import get_close_matches

            for near in get_close_matches(name, _KNOWN, 1):
                yield (
                    f"{PREFIX}{name} is not a setting and was not read; did you mean"
                    f" {PREFIX}{near}?"
                )
