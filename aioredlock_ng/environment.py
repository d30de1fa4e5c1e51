"""Settings from environment variables, for `Redlock.from_env` and the command line; it opens nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioredlock_ng.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PREFIX", "settings_from"]

PREFIX: Final = "AIOREDLOCK_NG_"

_NUMBERS: Final = ("ttl", "node_timeout", "drift_factor", "min_validity", "max_ttl", "connect_timeout", "close_timeout")

_WORDS: Final[dict[str, dict[str, bool | str | None]]] = {
    "fencing": {"true": True, "false": False},
    "recovery_guard": {"auto": "auto", "strict": "strict", "none": None},
}
"""Options that are named by a word."""


def settings_from(environ: Mapping[str, str], given: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """The nodes' URLs and the options that the environment names, but for those that are given.

    Raises:
        ConfigurationError: There are no nodes, or a value is unusable.
    """
    urls = [url.strip() for url in environ.get(f"{PREFIX}NODES", "").split(",") if url.strip()]
    if not urls:
        raise ConfigurationError(f"{PREFIX}NODES is not set; set it to the nodes' URLs, like redis://10.0.0.1,redis://10.0.0.2")
    if pieces := [number for number, url in enumerate(urls, 1) if "://" not in url]:
        # Not quoted: behind a comma that is part of a password it is part of one.
        raise ConfigurationError(
            f"{PREFIX}NODES: entry {pieces[0]} of {len(urls)} is no URL; begin each with redis://, rediss:// or unix://,"
            " and write a comma within a user name or password as %2C"
        )
    options: dict[str, Any] = {}
    for name in _NUMBERS:
        text = environ.get(PREFIX + name.upper())
        if text is not None and name not in given:
            try:
                options[name] = float(text)
            except ValueError:
                unit = "" if name == "drift_factor" else " of seconds"
                raise ConfigurationError(f"{PREFIX}{name.upper()} must be a number{unit}, got {text!r}") from None
    for name, values in _WORDS.items():
        word = environ.get(PREFIX + name.upper())
        if word is not None and name not in given:
            if word.lower() not in values:
                raise ConfigurationError(f"{PREFIX}{name.upper()} must be one of {', '.join(values)}, got {word!r}")
            options[name] = values[word.lower()]
    if f"{PREFIX}OWNER" in environ and "owner" not in given:
        owner = environ[f"{PREFIX}OWNER"]
        options["owner"] = {"true": True, "false": False}.get(owner.lower(), owner)
    if f"{PREFIX}KEY_FORMAT" in environ and "key_format" not in given:
        options["key_format"] = environ[f"{PREFIX}KEY_FORMAT"]
    return urls, options
