"""A node that is given by URL. No test pauses, stops or starts its server."""

from __future__ import annotations

import redis

__all__ = ["UrlNode"]


class UrlNode:
    """A server that the tests did not start."""

    running = True

    def __init__(self, url: str) -> None:
        self.url = url

    def start(self) -> None:
        """Do nothing, because the server runs."""

    def pause(self) -> None:
        """Raise `NotImplementedError`."""
        raise _cannot("pause")

    def resume(self) -> None:
        """Do nothing, because the server was never paused."""

    def crash(self) -> None:
        """Raise `NotImplementedError`."""
        raise _cannot("crash")

    def restart(self) -> None:
        """Raise `NotImplementedError`."""
        raise _cannot("restart")

    def wipe(self) -> None:
        """Delete every key."""
        self.command("FLUSHALL")

    def info(self) -> dict[str, str]:
        """Return the server's INFO."""
        lines = self.command("INFO").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def command(self, *args: str) -> bytes:
        """Send one command over a connection of its own, and return the payload of the reply."""
        # RESP3 and the client's own methods would convert some replies, for example numbers, into
        # Python objects.
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
    return NotImplementedError(
        f"no test can {what} a node given by URL: mark the test with @pytest.mark.faults"
    )
