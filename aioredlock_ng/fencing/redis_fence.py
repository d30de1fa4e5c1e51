"""Checks fences inside a Redis server, in one script with the read or write that they permit; it decides nothing itself."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import ResponseError

from aioredlock_ng._core.keys import name_bytes
from aioredlock_ng.errors import ConfigurationError
from aioredlock_ng.options import positive_seconds

from .fence import StaleFence, usable_fence

__all__ = ["GUARD_SCRIPT", "RedisFence"]

GUARD_SCRIPT: Final = (
    resources.files(__package__)
    .joinpath("guard.lua")
    .read_text(encoding="ascii")
    .replace("\r\n", "\n")
)
"""The Lua source of the check, for clients in other languages and for scripts of your own."""

_STALE = "STALEFENCE "
_MAX_SECONDS = 1e9


class RedisFence:
    """Reads and writes keys of one Redis for holders of locks, and refuses who shows an older fence than was seen before.

    What is protected may be a key of any type. The newest fence is remembered in a key beside it (see `fence_key`) by the
    same script that reads or writes, so nothing comes in between. Everything that is to be protected must go this way,
    the reads that a later write relies on too.

    The fence's key never ends before the data does. With `keep`, it ends so long after data that expires or was deleted;
    a holder who stands still for longer than that can then pass, and write where nothing is any more.

    Args:
        client: The client of the server (a primary) or cluster that has the data; used as it is. With `decode_responses`,
            replies are text. If it repeats commands whose reply was lost, what is not idempotent (INCR) may be done twice.
        keep: Seconds that a fence is remembered after its data has gone, up to 1e9. None: for ever, some 100 bytes per key.

    Raises:
        ConfigurationError: `client` is no asyncio client, or `keep` is out of range.

    Safety: a command whose caller was cancelled may have been carried out or not; it may be repeated with the same fence.
    """

    def __init__(self, client: Redis | RedisCluster, *, keep: float | None = None) -> None:
        if not isinstance(client, (Redis, RedisCluster)):
            raise ConfigurationError(
                f"client must be a redis.asyncio.Redis or RedisCluster, not {type(client).__module__}.{type(client).__name__};"
                " make one, as by redis.asyncio.Redis.from_url(…)"
            )
        self._run = client.register_script(GUARD_SCRIPT)
        self._keep = "" if keep is None else str(_milliseconds("keep", keep))

    @staticmethod
    def fence_key(key: str | bytes) -> bytes:
        """Return the key that remembers the newest fence of another: in the same slot of a cluster, and of no other key.

        `order:42` has `{order:42}:fence`; `order:{42}`, whose slot is that of `42`, has `fence:order:{42}`. Only names with a
        `}` that closes no tag have none in their slot: a cluster refuses every call for them.
        """
        name = name_bytes("key", key)
        tagged = b"}" in name.partition(b"{")[2]
        return b"fence:" + name if tagged else b"{" + name + b"}:fence"

    async def get(self, key: str | bytes, *, fence: int | None) -> Any:
        """Read a string in order to change it: from now on nobody with an older fence can write it.

        Raises:
            StaleFence: A newer fence was seen.
            ConfigurationError: The fence is None, as without fencing, or cannot be one: no int, negative, above `MAX_FENCE`;
                or another argument is unusable.
            redis.exceptions.RedisError: The server refused, or could not be asked.
        """
        return await self.execute("GET", key, fence=fence)

    async def set(
        self,
        key: str | bytes,
        value: str | bytes | float,
        *,
        fence: int | None,
        ttl: float | None = None,
    ) -> None:
        """Write a string; `ttl` is its life in seconds, 0.001 to 1e9, None: without end. Raises what `get` raises."""
        expiry = () if ttl is None else ("PX", _milliseconds("ttl", ttl))
        await self.execute("SET", key, value, *expiry, fence=fence)

    async def hgetall(self, key: str | bytes, *, fence: int | None) -> dict[Any, Any]:
        """Read a hash in order to change it, {} if there is none: as `get`."""
        flat = await self.execute("HGETALL", key, fence=fence)
        return dict(zip(flat[::2], flat[1::2], strict=True))

    async def hset(
        self, key: str | bytes, fields: Mapping[str, str | bytes | float], *, fence: int | None
    ) -> None:
        """Write fields of a hash, at least one. Raises what `get` raises."""
        if not isinstance(fields, Mapping):
            raise ConfigurationError(f"fields must be a mapping, not {type(fields).__name__}")
        if not fields:
            raise ConfigurationError("fields must not be empty; to delete the key, use delete()")
        await self.execute(
            "HSET", key, *(word for field in fields.items() for word in field), fence=fence
        )

    async def delete(self, key: str | bytes, *, fence: int | None) -> bool:
        """Delete a key; its newest fence is remembered. True when there was one. Raises what `get` raises."""
        return bool(await self.execute("DEL", key, fence=fence))

    async def execute(
        self, command: str, key: str | bytes, *args: str | bytes | float, fence: int | None
    ) -> Any:
        """Run any command that has the key as its first argument and its only key, if no newer fence was seen.

        Args:
            command: Such as INCRBY, LPUSH, EXPIRE.
            key: The data's key.
            args: What follows the key; up to some 7,000 (the scripts' stack).
            fence: `lease.fence` of the lock that protects this key.

        Returns:
            The reply as scripts give it: a hash as a flat list, null as None.

        Raises:
            StaleFence: A newer fence was seen; nothing was read or written.
            ConfigurationError: The fence is None, as without fencing, or cannot be one: no int, negative, above `MAX_FENCE`;
                or another argument is unusable.
            redis.exceptions.RedisError: The server refused, or could not be asked.
        """
        shown = usable_fence(fence)
        try:
            return await self._run(
                keys=[key, self.fence_key(key)], args=[shown, self._keep, command, *args]
            )
        except ResponseError as error:
            words = str(error)
            if not words.startswith(_STALE):
                raise
            raise StaleFence(key, shown, int(words.removeprefix(_STALE))) from None


def _milliseconds(name: str, value: object) -> int:
    seconds = positive_seconds(name, value)
    if not 0.001 <= seconds <= _MAX_SECONDS:
        raise ConfigurationError(
            f"{name} must be seconds from 0.001 to 1e9, or None, not {value!r}"
        )
    return round(seconds * 1000)
