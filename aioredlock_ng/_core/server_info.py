"""Read a server's INFO. The names of its fields differ between Redis and Valkey."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["OLDEST", "facts_of", "info_fields", "is_too_old", "server_name", "version_of"]

OLDEST: Final = (6, 2)
"""The first version of Redis whose ZADD has the option GT, which fences need."""

_USUAL = re.compile(
    r"[0-9.]*|[0-9a-f]{40}|redis|valkey|master|slave|standalone|sentinel|cluster|ok|err"
    r"|noeviction|(?:allkeys|volatile)-\w{3,6}"
)
"""Pattern of values on which decisions of the library depend. These values are not redacted, even
if a password equals one of them."""

_SAVING = ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")


def info_fields(reply: bytes, redact: Callable[[str], str] = str) -> dict[str, str]:
    """Return the `name:value` lines of INFO.

    The function `redact` removes the node's credentials from each value that does not match
    `_USUAL`.
    """
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    return {
        name: value if _USUAL.fullmatch(value) else redact(value)
        for name, colon, value in lines
        if colon
    }


def server_name(info: Mapping[str, str]) -> str:
    """Return name and version, such as "redis 7.0.15" or "valkey 9.1.2"; "" if INFO has no version.

    Valkey's `redis_version` names the version of Redis with which Valkey is compatible. So
    `valkey_version` is used for Valkey.
    """
    name = info.get("server_name", "redis")
    version = info.get(f"{name}_version") or info.get("redis_version", "")
    return f"{name} {version}" if version else ""


def version_of(server: str) -> tuple[int, ...]:
    """Return the numbers of the version in a result of `server_name`; empty if there are none."""
    return tuple(int(part) for part in server.rpartition(" ")[2].split(".") if part.isdecimal())


def is_too_old(server: str) -> bool:
    """True for the `server_name` of a Redis before 6.2.

    The result is False for any other server, because other servers number their versions
    differently.
    """
    version = version_of(server)
    return server.startswith("redis ") and version != () and version < OLDEST


def facts_of(info: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of `NodeFacts` that INFO shows."""
    replica = info.get("role") == "slave"
    return {
        "server": server_name(info),
        "run_id": info.get("run_id", ""),
        "role": info.get("role", ""),
        "primary": f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
        if replica
        else "",
        # Valkey has server_mode in place of redis_mode.
        "cluster": "cluster" in (info.get("redis_mode"), info.get("server_mode"))
        or info.get("cluster_enabled") == "1",
        "uptime": _number(info, "uptime_in_seconds"),
        "replicas": _number(info, "connected_slaves"),
        "maxmemory": _number(info, "maxmemory"),
        "maxmemory_policy": info.get("maxmemory_policy", ""),
        "evicted_keys": _number(info, "evicted_keys"),
        "aof": info["aof_enabled"] == "1" if "aof_enabled" in info else None,
        "failing": tuple(name for name in _SAVING if info.get(name, "ok") != "ok"),
    }


def _number(info: Mapping[str, str], name: str) -> int | None:
    value = info.get(name, "")
    return int(value) if value.isdecimal() else None
