"""Check a fence inside a Redis server, in the script that also reads or writes the data."""

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
"""The Lua source of the check, for clients in other languages and for your own scripts."""

_STALE = "STALEFENCE "
_MAX_SECONDS = 1e9


class RedisFence:
    """Read and write keys of one Redis server for lock holders, and refuse outdated fences.

    The protected data may be a key of any type. The newest fence is stored in a second key; see
    `fence_key`. One script compares the fence and reads or writes the data, so no other command
    runs between the two steps. All access to protected data must use this class, including the
    reads that a later write relies on.

    The key of the fence never expires before the data. With the argument `keep`, the key of the
    fence expires `keep` seconds after the data expired or was deleted. After the fence has expired,
    an outdated holder can create the data again.

    Args:
        client: The client of the primary server or cluster that has the data. The client's own
            settings apply: texts are written in its encoding, and with `decode_responses`, replies
            are text. If the client repeats commands whose reply was lost, a command such as INCR
            may run twice.
        keep: Seconds for which a fence outlives its data, 0.001 to 1e9. None: for ever,
            which needs about 100 bytes per key.

    Raises:
        ConfigurationError: `client` is not an asyncio client, or `keep` is out of range.

    Safety: the command of a cancelled caller may or may not have run. The caller may repeat the
    command with the same fence.
    """

    def __init__(self, client: Redis | RedisCluster, *, keep: float | None = None) -> None:
        if not isinstance(client, (Redis, RedisCluster)):
            raise ConfigurationError(
                "client must be a redis.asyncio.Redis or RedisCluster, not"
                f" {type(client).__module__}.{type(client).__name__}; make a client with"
                " redis.asyncio.Redis.from_url(…)"
            )
        self._run = client.register_script(GUARD_SCRIPT)
        self._encoder = client.get_encoder()
        self._keep = "" if keep is None else str(_milliseconds("keep", keep))

    @staticmethod
    def fence_key(key: str | bytes) -> bytes:
        """Return the key that stores the newest fence of `key`, in the same slot of a cluster.

        No other key has the same fence key. The fence key of `order:42` is `{order:42}:fence`. The
        fence key of `order:{42}`, whose slot is that of `42`, is `fence:order:{42}`. A name with a
        `}` but without a hash tag, such as `a}b` or `{}a`, has its fence key in another slot. A
        cluster refuses every call for such a name.

        A text means its UTF-8 bytes. If the client has another encoding, pass the bytes of the key.
        """
        name = name_bytes("key", key)
        tagged = b"}" in name.partition(b"{")[2]
        return b"fence:" + name if tagged else b"{" + name + b"}:fence"

    async def get(self, key: str | bytes, *, fence: int | None) -> Any:
        """Read a string before a change, and refuse older fences from now on.

        Returns:
            The value, or None if the key does not exist.

        Raises:
            StaleFence: The key has seen a newer fence.
            ConfigurationError: The fence is None (a lock without fencing), is not an int, is
                negative or is above `MAX_FENCE`. Also raised if another argument is invalid.
            redis.exceptions.RedisError: The server refused the command or was not reachable.
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
        """Write a string. Raise the errors of `get`.

        `fence` is `lease.fence` of the lock that protects the key. The string expires after `ttl`
        seconds, 0.001 to 1e9. If `ttl` is None, the string never expires.
        """
        expiry = () if ttl is None else ("PX", _milliseconds("ttl", ttl))
        await self.execute("SET", key, value, *expiry, fence=fence)

    async def hgetall(self, key: str | bytes, *, fence: int | None) -> dict[Any, Any]:
        """Read a hash before a change, as `get` does. Return {} if the key does not exist."""
        flat = await self.execute("HGETALL", key, fence=fence)
        return dict(zip(flat[::2], flat[1::2], strict=True))

    async def hset(
        self, key: str | bytes, fields: Mapping[str, str | bytes | float], *, fence: int | None
    ) -> None:
        """Write one or more fields of a hash. Raise the errors of `get`."""
        if not isinstance(fields, Mapping):
            raise ConfigurationError(f"fields must be a mapping, not {type(fields).__name__}")
        if not fields:
            raise ConfigurationError("fields must not be empty; to delete the key, use delete()")
        await self.execute(
            "HSET", key, *(word for field in fields.items() for word in field), fence=fence
        )

    async def delete(self, key: str | bytes, *, fence: int | None) -> bool:
        """Delete a key, remember its newest fence, and return True if the key existed.

        Raises the errors of `get`.
        """
        return bool(await self.execute("DEL", key, fence=fence))

    async def execute(
        self, command: str, key: str | bytes, *args: str | bytes | float, fence: int | None
    ) -> Any:
        """Run a command whose first argument and only key is `key`, if `fence` is not outdated.

        Args:
            command: The command's name, for example INCRBY, LPUSH or EXPIRE.
            key: The data's key.
            args: The arguments after the key. About 7,000 arguments fit on the stack of a script.
            fence: `lease.fence` of the lock that protects this key.

        Returns:
            The reply as a script returns it: a hash is a flat list, null is None.

        Raises:
            StaleFence: The key has seen a newer fence. The script read and wrote nothing.
            ConfigurationError: The fence is None (a lock without fencing), is not an int, is
                negative or is above `MAX_FENCE`. Also raised if another argument is invalid.
            redis.exceptions.RedisError: The server refused the command or was not reachable.
        """
        shown, name = usable_fence(fence), self._name(key)
        try:
            return await self._run(
                keys=[name, self.fence_key(name)], args=[shown, self._keep, command, *args]
            )
        except ResponseError as error:
            words = str(error)
            if not words.startswith(_STALE):
                raise
            raise StaleFence(key, shown, int(words.removeprefix(_STALE))) from None

    def _name(self, key: str | bytes) -> bytes:
        # The client may have another encoding than UTF-8. The fence key must belong to the bytes
        # that the client writes for the data's key. Otherwise a client that passes these bytes
        # would use another fence for the same data.
        try:
            return name_bytes("key", self._encoder.encode(key) if isinstance(key, str) else key)
        except UnicodeEncodeError:
            raise ConfigurationError(
                f"key {key!r} cannot be written in {self._encoder.encoding}, the encoding of the"
                " client; pass bytes instead"
            ) from None


def _milliseconds(name: str, value: object) -> int:
    seconds = positive_seconds(name, value)
    if not 0.001 <= seconds <= _MAX_SECONDS:
        raise ConfigurationError(
            f"{name} must be seconds from 0.001 to 1e9, or None, not {value!r}"
        )
    return round(seconds * 1000)
