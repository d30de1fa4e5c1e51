"""A node that only has a URL; never pauses, stops or starts anything."""

from __future__ import annotations

import redis

__all__ = ["UrlNode"]


class UrlNode:
    """A server that somebody else runs."""

    running = True

    def __init__(self, url: str) -> None:
        self.url = url

    def start(self) -> None:
        """It runs."""

    def pause(self) -> None:
        """Refuse."""
        raise _cannot("pause")

    def resume(self) -> None:
        """It was never paused."""

    def crash(self) -> None:
        """Refuse."""
        raise _cannot("crash")

    def restart(self) -> None:
        """Refuse."""
        raise _cannot("restart")

    def wipe(self) -> None:
        """Delete every key."""
        self.command("FLUSHALL")

    def info(self) -> dict[str, str]:
        """Return the server's INFO."""
        lines = self.command("INFO").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def command(self, *args: str) -> bytes:
        """Send one command over a connection of its own; return a plain reply's payload."""
        # The newer protocol would turn numbers into objects, and so would the client's own methods.
        connection = redis.Redis.from_url(
            self.url, socket_timeout=5, single_connection_client=True, protocol=2
        )
        try:
            assert connection.connection is not None
            connection.connection.send_command(*args)  # type: ignore[no-untyped-call,unused-ignore]
            reply = connection.connection.read_response()
        finally:
            connection.close()
        if reply is None:
            return b""
        return reply if isinstance(reply, bytes) else str(reply).encode()


def _cannot(what: str) -> NotImplementedError:
    return NotImplementedError(f"a given URL cannot {what}: mark the test with @pytest.mark.faults")
