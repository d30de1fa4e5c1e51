"""Provide locks for Flask: a manager for the app, and a decorator for views.

The module needs the extra `flask`. `import aioredlock_ng` does not import Flask.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from aioredlock_ng import ConfigurationError
from aioredlock_ng.sync import Redlock

from ._settings import manager_from
from ._views import Refused, ViewLock, policy_of

try:
    import flask
    from werkzeug.exceptions import HTTPException
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f'{__name__} needs flask: install aioredlock-ng with its extra "flask"',
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from ._policy import Answer
    from ._views import ViewOptions
__all__ = ["LockUnavailable", "get_redlock", "init_redlock", "locked"]

_NAME: Final = "AIOREDLOCK_NG"

P = ParamSpec("P")
R = TypeVar("R")


class LockUnavailable(HTTPException):
    """The HTTP error for a request that did not get its lock, or lost it.

    The status is 409, 423 or 429 if other requests held the lock or all slots. The status is 503 if
    no quorum of nodes could grant the lock, or if the lock was lost. The status is 400 if the
    request's values cannot form a lock's name or label. Flask answers with JSON, and with a
    Retry-After header except for 400. An error handler for this class may answer differently.
    `__cause__` is the library's error.
    """

    def __init__(self, answer: Answer) -> None:
        self.code = answer.status
        response = flask.jsonify(detail=answer.detail)
        response.status_code = answer.status
        response.headers.update(answer.headers)
        super().__init__(answer.detail, response)


def init_redlock(app: flask.Flask, redlock: Redlock | None = None) -> None:
    """Give the app a manager, which opens at its first use in each process of the server.

    The manager stays open until the end of the process, or until its `close()` is called. A test
    that makes an app of its own should call `close()`, or give all apps the same manager.

    Args:
        app: The app.
        redlock: The manager. None: the manager is made from `app.config["AIOREDLOCK_NG"]`, a dict
            of `nodes` and the options of `Redlock`. Without this setting, nodes and options come
            from the environment, as in `Redlock.from_env()`.

    Raises:
        ConfigurationError: `redlock` or a setting is invalid.
    """
    if redlock is not None and not isinstance(redlock, Redlock):
        raise ConfigurationError(
            "init_redlock() takes a Redlock of aioredlock_ng.sync, not"
            f" {type(redlock).__module__}.{type(redlock).__name__}"
        )
    given = app.config.get(_NAME)
    app.extensions[_NAME] = manager_from(given, _NAME) if redlock is None else redlock


def get_redlock() -> Redlock:
    """Return the manager of the current app.

    Raises:
        ConfigurationError: The app has no manager.
    """
    redlock: Redlock | None = flask.current_app.extensions.get(_NAME)
    if redlock is None:
        raise ConfigurationError("this app has no Redlock: write init_redlock(app)")
    return redlock


def locked(
    template: str, *more: str, **options: Unpack[ViewOptions]
) -> Callable[[Callable[P, R]], Callable[P, flask.Response]]:
    """Hold a lock while a view runs.

    Write the decorator directly above the `def`, below `@app.route`. In the view,
    `get_redlock().current_lease` is the lease. The lock is released before the response is sent.
    The view runs in a thread, which a loss of the lock cannot cancel. So the view should call
    `check()` of the lease before any step that must not happen twice. After a loss the client
    receives 503.

    Args:
        template: The lock's name, with parameters of the view: "order:{order_id}". Attributes of
            `g` and `request` are possible too: "cart:{g.user.id}". Each value must be a str, int,
            UUID, date or Enum. Two equal values of one of these types always have the same text.
        more: Names of further locks, which are acquired together: all or nothing.
        options: The options of `ViewOptions`: `limit`, `shared`, `ttl`, `blocking_timeout`,
            `max_hold`, `min_hold`, `held_status`, `retry_after`, `owner`, `fail_fast` and `fair`.
            By default `blocking_timeout` is 0 (no wait), `held_status` is 423 (429 with `limit`),
            `retry_after` is 1, and `fail_fast` is True. All other options are None or False.

    Raises:
        ConfigurationError: An argument is invalid. A call of the view raises this error if the app
            has no manager, a value has an unsupported type, or the response is a stream.
    """
    policy = policy_of((template, *more), options)

    def decorate(view: Callable[P, R]) -> Callable[P, flask.Response]:
        lock = ViewLock(view, policy, frozenset({"g", "request"}))

        @functools.wraps(view)
        def call(*args: P.args, **kwargs: P.kwargs) -> flask.Response:
            def respond() -> flask.Response:
                result: Any = view(*args, **kwargs)
                response = flask.make_response(result)
                if response.is_streamed and not response.direct_passthrough:
                    raise ConfigurationError(
                        "a stream is produced after the view has released its lock; use `with"
                        " get_redlock().lock(...)` in the generator"
                    )
                return response

            more_values = {"g": flask.g, "request": flask.request}
            try:
                return lock.hold(get_redlock(), respond, args, kwargs, more_values)
            except Refused as refused:
                raise LockUnavailable(refused.answer) from refused.__cause__

        return call

    return decorate
