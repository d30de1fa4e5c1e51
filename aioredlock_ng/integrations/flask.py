"""Provide locks for Flask: a manager for the app, and a decorator for views.

The module needs the extra `flask`. Only an import of this module imports Flask.
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
    """The lock was held by another request (409 or 423), not available, or lost (503).

    The status is 400 if the request's values form no name. Flask answers with JSON and a
    Retry-After header. An error handler for this class may answer differently. `__cause__` is the
    library's error with the votes of the nodes.
    """

    def __init__(self, answer: Answer) -> None:
        self.code = answer.status
        response = flask.jsonify(detail=answer.detail)
        response.status_code = answer.status
        response.headers.update(answer.headers)
        super().__init__(answer.detail, response)


def init_redlock(app: flask.Flask, redlock: Redlock | None = None) -> None:
    """Give the app a manager. It opens at its first use, in each process of the server.

    Args:
        app: The app.
        redlock: The manager. None: `app.config["AIOREDLOCK_NG"]`, a dict of `nodes` and the options
            of `Redlock`. Without it the environment, as `Redlock.from_env()`.

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
        ConfigurationError: The app has none.
    """
    redlock: Redlock | None = flask.current_app.extensions.get(_NAME)
    if redlock is None:
        raise ConfigurationError("this app has no Redlock: write init_redlock(app)")
    return redlock


def locked(
    template: str, *more: str, **options: Unpack[ViewOptions]
) -> Callable[[Callable[P, R]], Callable[P, flask.Response]]:
    """Hold a lock while a view runs.

    Write it directly above the `def`, below `@app.route`. `get_redlock().current_lease` is the
    lease. The lock is released before the response is sent. Nothing can cancel a thread, so the
    view should call `check()` of the lease before any step that must not happen twice. After a loss
    the client receives 503.

    Args:
        template: The lock's name, with parameters of the view: "order:{order_id}". Attributes of
            `g` and `request` are possible too: "cart:{g.user.id}". The type of a value is str, int,
            UUID, date or Enum, so that a value has one name.
        more: Names of further locks, which are acquired together: all or nothing.
        options: `ViewOptions`: `ttl`, `blocking_timeout` (0: no wait), `max_hold`, `held_status`
            (423), `retry_after` (1), `fail_fast` (True) and `fair` (False).

    Raises:
        ConfigurationError: An argument is invalid. At a request: the app has no manager, a value
            has no unique text, or the view returns a stream.
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
                        "a stream is made after the view has returned, without its lock; use `with"
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
