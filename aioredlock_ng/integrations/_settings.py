"""Make a manager for threads from the settings of an application."""

from __future__ import annotations

from collections.abc import Mapping

from aioredlock_ng import ConfigurationError
from aioredlock_ng.sync import Redlock, RedlockOptions

__all__ = ["manager_from"]


def manager_from(settings: object, where: str) -> Redlock:
    """Return the manager that the settings describe. The manager opens at its first use.

    Args:
        settings: A mapping with the key `nodes` and options of `Redlock`. None: nodes and options
            come from the environment.
        where: Name of the setting in errors.

    Raises:
        ConfigurationError: The settings are invalid. The message does not contain the password of
            a URL.
    """
    if settings is None:
        return Redlock.from_env()
    if not isinstance(settings, Mapping) or "nodes" not in settings:
        raise ConfigurationError(
            f'{where} must be a dict like {{"nodes": ["redis://10.0.0.1"], "ttl": 10}}; without'
            " this setting the nodes come from AIOREDLOCK_NG_NODES"
        )
    if unknown := settings.keys() - {"nodes", *RedlockOptions.__annotations__}:
        raise ConfigurationError(
            f"{where} contains {', '.join(sorted(map(str, unknown)))}, which is neither nodes nor"
            f" an option of Redlock; there are: {', '.join(sorted(RedlockOptions.__annotations__))}"
        )
    try:
        return Redlock(**settings)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
