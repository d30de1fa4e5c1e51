"""Run a real server process on loopback, for tests and demos."""

from __future__ import annotations

import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from ._child import Child, remover_of
from ._control import ServerRefused, command, info
from ._startable import Startable
from .binaries import ServerNotFound, find_server
from .ports import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

__all__ = ["LocalServer", "ServerFailed", "ServerNotFound", "TLSFiles", "find_server"]

_START_SECONDS = 15.0
_STOP_SECONDS = 3.0


class ServerFailed(RuntimeError):
    """The server did not start, or no port was free. The message may quote the server's log."""


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """PEM files of a TLS server: its certificate, its key, and the certificate of its authority."""

    cert: Path
    key: Path
    ca: Path


class LocalServer(Startable):
    """A real Redis or Valkey server process on loopback, with the faults that tests need.

    On Linux, the server dies with the process that started it, even after SIGKILL. The server's
    port stays the same over restarts. Without `appendonly` the server loses all data when it stops.
    The object works with `with` and `async with`. Starts, stops and faults block the calling
    thread, usually for some milliseconds. In a forked process, `stop` and `close` do nothing,
    because the server belongs to the parent.

    Args:
        extra_args: Further arguments of the server, for example `["--maxmemory", "1mb"]`.
        binary: The server program. Default: the result of `find_server`.
        port: A fixed TCP port. Default: a free port.
        appendonly: Keep the data over `crash` and `restart`, in an append-only file. The server
            usually writes a command to the file before it answers the command.
        unix_socket: Listen on a Unix socket only. `url` is then `unix://…`.
        password: The password that every client needs.
        tls: Accept TLS only, with these files.
    """

    def __init__(
        self,
        extra_args: Sequence[str] = (),
        *,
        binary: Path | None = None,
        port: int | None = None,
        appendonly: bool = False,
        unix_socket: bool = False,
        password: str | None = None,
        tls: TLSFiles | None = None,
    ) -> None:
        if unix_socket and (port is not None or tls is not None):
            raise ValueError("a server on a Unix socket has neither port nor TLS")
        self._binary = binary
        self._extra_args = tuple(extra_args)
        self._port = port
        self._port_is_free_choice = port is None and not unix_socket
        self._appendonly = appendonly
        self._unix_socket = unix_socket
        self._password = password
        self._tls = tls
        self._dir: Path | None = None
        self._child: Child | None = None

    @property
    def port(self) -> int:
        """TCP port; 0 for a server on a Unix socket."""
        if self._unix_socket:
            return 0
        if self._port is None:
            raise RuntimeError("the server has no port before its first start()")
        return self._port

    @property
    def address(self) -> str:
        """Address of the server: `127.0.0.1:port`, or the path of its Unix socket."""
        return str(self.socket_path) if self._unix_socket else f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """URL for a client, with password and certificate authority."""
        user = f":{quote(self._password, safe='')}@" if self._password is not None else ""
        if self._unix_socket:
            return f"unix://{user}{self.socket_path}"
        if self._tls is not None:
            return f"rediss://{user}{self.address}?{urlencode({'ssl_ca_certs': str(self._tls.ca)})}"
        return f"redis://{user}{self.address}"

    @property
    def socket_path(self) -> Path:
        """Path of the Unix socket, which this object uses for its commands to every server."""
        if self._dir is None:
            raise RuntimeError("the server has no socket before its first start()")
        return self._dir / "socket"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        return self._running().pid

    @property
    def running(self) -> bool:
        """True if the process exists, even if it is paused."""
        return self._child is not None and not self._child.exited.is_set()

    def start(self) -> Self:
        """Start the process and wait until it answers PING.

        Raises:
            RuntimeError: The server is running already.
            ServerNotFound: There is no server program on this machine.
            ServerFailed: The process ended or did not answer for some seconds, or no port was free.
        """
        if self.running:
            raise RuntimeError(f"the server on {self.address} is running already")
        if self._dir is None:
            self._dir = Path(tempfile.mkdtemp(prefix="redlock-"))
            self._remove_dir = remover_of(self, self._dir)
        for _ in range(20):
            if self._port_is_free_choice:
                self._port = free_port()
            if self._launched():
                self._port_is_free_choice = False
                return self
        raise ServerFailed(f"no free port after 20 attempts; the last was {self.address}")

    def stop(self) -> None:
        """Stop the process in an orderly way, even if it is paused. Idempotent."""
        if self._child is not None:
            self._child.terminate(_STOP_SECONDS)
            self._child = None

    def crash(self) -> None:
        """Kill the process (SIGKILL) and wait until it is gone.

        Raises:
            RuntimeError: The server is not running.
        """
        self._running().kill()
        self._child = None

    def pause(self) -> None:
        """Hang the process (SIGSTOP): it keeps its connections and answers nothing.

        Raises:
            RuntimeError: The server is not running.
        """
        self._running().pause()

    def resume(self) -> None:
        """Resume a paused process (SIGCONT).

        The process then answers the commands that arrived meanwhile.

        Raises:
            RuntimeError: The server is not running.
        """
        self._running().signal(signal.SIGCONT)

    def restart(self) -> Self:
        """Restart the process on the same port. Without `appendonly` the server is then empty."""
        self.stop()
        return self.start()

    def wipe(self) -> None:
        """Delete every key (FLUSHALL). Raises the errors of `command`."""
        self.command("FLUSHALL")

    def info(self) -> dict[str, str]:
        """Return the server's INFO, with one entry per line."""
        return info(self.socket_path, password=self._password)

    def command(self, *args: str) -> bytes:
        """Send one command over a new connection, and return the payload of the reply.

        The reply must not be an array.

        Raises:
            RuntimeError: The server answered with an error. The message contains the server's
                words.
            OSError: The server does not run, or gives no answer within five seconds.
        """
        return command(self.socket_path, *args, password=self._password)

    def close(self) -> None:
        """Stop the process and delete its directory."""
        self.stop()
        if self._dir is not None:
            self._remove_dir()
            self._dir = None

    def __repr__(self) -> str:
        where = "not started" if self._dir is None else self.address
        return f"<LocalServer {where}{'' if self.running else ' (down)'}>"

    def _launched(self) -> bool:
        """Start the process and wait for an answer. Return False if the port is in use."""
        assert self._dir is not None
        log = self._dir / "log"
        log.write_bytes(b"")
        (self._dir / "socket").unlink(missing_ok=True)
        if not self._appendonly:
            # A command or a replica may have caused a snapshot. A server that reads a snapshot
            # would not be empty.
            (self._dir / "dump.rdb").unlink(missing_ok=True)
        command_line = self._command_line()
        child = self._child = Child(command_line, log)
        end = time.monotonic() + _START_SECONDS
        while not child.exited.is_set() and time.monotonic() < end:
            if self._answers():
                return True
            child.exited.wait(0.002)
        self.stop()
        words = log.read_text(errors="replace")
        if self._port_is_free_choice and "already in use" in words:
            return False
        tail = "\n".join(words.splitlines()[-8:])
        raise ServerFailed(
            f"the server {command_line[0]} did not start on {self.address}; end of its log:\n{tail}"
        )

    def _command_line(self) -> list[str]:
        settings = {
            "--bind": "127.0.0.1",
            "--port": "0" if self._tls is not None else str(self.port),
            "--unixsocket": str(self.socket_path),
            "--unixsocketperm": "700",
            "--dir": str(self._dir),
            "--daemonize": "no",
            "--save": "",
            "--appendonly": "yes" if self._appendonly else "no",
        }
        if self._password is not None:
            settings["--requirepass"] = self._password
        if self._tls is not None:
            settings |= {
                "--tls-port": str(self.port),
                "--tls-cert-file": str(self._tls.cert),
                "--tls-key-file": str(self._tls.key),
                "--tls-ca-cert-file": str(self._tls.ca),
                "--tls-auth-clients": "no",
            }
        binary = self._binary or find_server()
        return [
            str(binary),
            *(word for pair in settings.items() for word in pair),
            *self._extra_args,
        ]

    def _answers(self) -> bool:
        try:
            return self.command("PING") == b"PONG"
        except ServerRefused as refusal:
            # A server that only refuses this client is up. A server that is still loading its data
            # is not up yet.
            return str(refusal).startswith(("NOAUTH", "NOPERM", "WRONGPASS"))
        except OSError:
            return False

    def _running(self) -> Child:
        if self._child is None or self._child.exited.is_set():
            raise RuntimeError(f"the server on {self.address} is not running")
        return self._child
