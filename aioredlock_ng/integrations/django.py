"""Provide locks for Django: a manager from settings.py, and decorators for views and commands.

The module needs the extra `django`. `import aioredlock_ng` does not import Django.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar

from aioredlock_ng import ConfigurationError, LockLost, LockNotAcquired, UpgradeRefused
from aioredlock_ng._core.request_labels import LabelTemplate, UnusableLabel, label_template
from aioredlock_ng._core.slots import checked_limit
from aioredlock_ng._notes import is_loss
from aioredlock_ng.guarded import described
from aioredlock_ng.options import check_shared
from aioredlock_ng.sync.guarded import refuse_unrun

from ._settings import manager_from
from ._sigterm import ending_by_sigterm
from ._tasks import is_held
from ._template import Template, UnusableValue
from ._views import Refused, ViewLock, policy_of

try:
    from asgiref.sync import iscoroutinefunction
    from django.conf import settings
    from django.core.management.base import CommandError
    from django.core.signals import setting_changed
    from django.db import connections
    from django.http import FileResponse, JsonResponse
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f'{__name__} needs django: install aioredlock-ng with its extra "django"',
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from aioredlock_ng.sync import GuardOptions, Redlock

    from ._views import ViewOptions

__all__ = ["get_redlock", "locked", "locked_command"]

_NAME: Final = "AIOREDLOCK_NG"
_HELD, _NO_QUORUM, _LOST = 1, 69, 75
"""Exit statuses of a command if its lock is held, if no quorum can grant it, or if it is lost.

A CommandError has status 1 by default. 69 and 75 are EX_UNAVAILABLE and EX_TEMPFAIL of sysexits.h.
`aioredlock-ng run` has the same statuses.
"""

V = TypeVar("V", bound="Callable[..., Any]")

_managers: Final[dict[str, Redlock]] = {}
_making = threading.Lock()
"""Mutex for the creation of the manager.

A process has one manager, because Django has one set of settings.
"""


def get_redlock() -> Redlock:
    """Return the manager of this project.

    The manager opens at its first use in each process. The setting `AIOREDLOCK_NG` is a dict of
    `nodes` and the options of `Redlock`. Without this setting, nodes and options come from the
    environment, as in `Redlock.from_env()`.

    Raises:
        ConfigurationError: A setting is invalid.
    """
    if (found := _managers.get(_NAME)) is None:
        with _making:
            if (found := _managers.get(_NAME)) is None:
                found = _managers[_NAME] = manager_from(getattr(settings, _NAME, None), _NAME)
    return found


def locked(template: str, *more: str, **options: Unpack[ViewOptions]) -> Callable[[V], V]:
    """Hold a lock while a view runs.

    In the view, `get_redlock().current_lease` is the lease. The lock is released before the
    response is sent. The view runs in a thread, which a loss of the lock cannot cancel. So the view
    should call `check()` of the lease before any step that must not happen twice. After a loss the
    client receives 503. The decorator works on functions, on methods of a class-based view, and in
    `method_decorator`.

    The view must open its transactions under the lock. A transaction that began before the lock
    would be committed after the release, and the next holder would read old data. For this reason
    the view is not called inside of `transaction.atomic`. With `ATOMIC_REQUESTS`, write
    `@transaction.non_atomic_requests` above `@locked`. With `AUTOCOMMIT: False`, a transaction that
    began before the lock is not noticed, and the view must commit by itself.

    Args:
        template: The lock's name, with parameters of the view: "order:{order_id}", or
            "cart:{request.user.pk}". Each value must be a str, int, UUID, date or Enum. Two equal
            values of one of these types always have the same text.
        more: Names of further locks, which are acquired together: all or nothing.
        options: The options of `ViewOptions`: `limit`, `shared`, `ttl`, `blocking_timeout`,
            `max_hold`, `min_hold`, `held_status`, `retry_after`, `owner`, `fail_fast` and `fair`.
            By default `blocking_timeout` is 0 (no wait), `held_status` is 423 (429 with `limit`),
            `retry_after` is 1, and `fail_fast` is True. All other options are None or False.

    Raises:
        ConfigurationError: An argument is invalid. A call of the view raises this error for an open
            transaction, for a value of an unsupported type, and for a response that is a stream. So
            does a view whose work begins after the release, such as the `dispatch` of a class with
            `async def` methods.
    """
    policy = policy_of((template, *more), options)

    def decorate(view: V) -> V:
        lock = ViewLock(view, policy, is_async=iscoroutinefunction(view))

        @functools.wraps(view)
        def call(*args: Any, **kwargs: Any) -> Any:
            def respond() -> Any:
                response = view(*args, **kwargs)
                refuse_unrun(response, view)
                if getattr(response, "streaming", False) and not isinstance(response, FileResponse):
                    raise ConfigurationError(
                        "a stream is produced after the view has released its lock; use `with"
                        " get_redlock().lock(...)` in the generator"
                    )
                return response

            _refuse_transactions()
            try:
                return lock.hold(get_redlock(), respond, args, kwargs, {})
            except Refused as refused:
                status, detail, headers = refused.answer
                return JsonResponse({"detail": detail}, status=status, headers=headers)

        return call  # type: ignore[return-value]

    return decorate


def locked_command(
    template: str,
    *,
    held: Literal["raise", "skip"] = "raise",
    limit: int | None = None,
    shared: bool = False,
    **options: Unpack[GuardOptions],
) -> Callable[[V], V]:
    """Hold a lock while the `handle` of a management command runs.

    In `handle`, `get_redlock().current_lease` is the lease. SIGTERM and Ctrl+C release the lock.
    After SIGKILL the lock expires.

    Args:
        template: The lock's name, with options of the command: "import:{shop}".
        held: The effect on a command whose lock another client holds. "raise": the command raises
            `CommandError`, with status 1. "skip": the command prints a line to standard output, and
            its status is 0.
        limit: Number of commands, 1 to 1,000, that may run at a time under one name. The commands
            then share a semaphore in place of a lock. `held` applies while other commands hold all
            slots. None: one command at a time, under a lock.
        shared: If True, the lock is `rwlock(name).read()`. Commands with the same lock name may
            then run at the same time. A lock of the same name without `shared` is a writer.
        options: As for `Redlock.lock`. `blocking_timeout` limits the wait. Default: 0, no wait.
            `min_hold` is the shortest time for which the lock or slot stays taken, even if the
            command is shorter. `owner` is a text with placeholders like those of the name, or a
            function with some of the command's options as parameters.

    Raises:
        ConfigurationError: `template`, `held`, `limit`, `shared` or `owner` is invalid. The command
            raises this error if an argument in `options` is invalid, if a placeholder has no value,
            or if a value for the name is not a str, int, UUID, date or Enum. The error is also
            raised if `handle` is a coroutine function or a generator.

    The command raises `CommandError` with status 69 if no quorum of nodes can grant the lock, and
    with status 75 if the lock was lost.
    """
    names = Template(template)
    if held not in ("raise", "skip"):
        raise ConfigurationError(f"held must be raise or skip, got {held!r}")
    if shared:
        check_shared(options, limit=limit)
    elif limit is not None:
        checked_limit(limit)
    owner = label_template(options.pop("owner", None))
    options = {"blocking_timeout": 0.0, **options}

    def decorate(handle: V) -> V:
        @functools.wraps(handle)
        def call(self: Any, *args: Any, **given: Any) -> Any:
            name, label = _name_and_label(names, owner, given)
            lock = described(get_redlock(), (name,), options, limit, shared=shared, owner=label)
            lease = None
            try:
                with ending_by_sigterm(), lock as lease:
                    result = handle(self, *args, **given)
                    refuse_unrun(result, handle)
                    return result
            except LockNotAcquired as error:
                if lease is not None or isinstance(error, UpgradeRefused):
                    raise
                if held == "skip" and is_held(error):
                    self.stdout.write(f"skipped: {error}")
                    return None
                _fail(error, _HELD if is_held(error) else _NO_QUORUM)
            except (LockLost, ExceptionGroup) as error:
                if lease is None or not lease.was_gone or not is_loss(error):
                    raise
                _fail(lease.lost_error(), _LOST)

        return call  # type: ignore[return-value]

    return decorate


def _fail(error: Exception, status: int) -> NoReturn:
    raise CommandError(str(error), returncode=status) from error


def _name_and_label(
    template: Template, owner: LabelTemplate | None, given: dict[str, Any]
) -> tuple[str, str | None]:
    labelled = [] if owner is None else owner.placeholders
    for where, placeholders in (
        (f"lock name {template.text!r}", template.placeholders),
        ("owner", labelled),
    ):
        if missing := {placeholder.name for placeholder in placeholders} - given.keys():
            raise ConfigurationError(
                f"{where}: this command has no option {', '.join(sorted(missing))}; there are:"
                f" {', '.join(sorted(given)) or 'none'}"
            )
    try:
        return template.fill(given), None if owner is None else owner.label(given)
    except (UnusableValue, UnusableLabel) as error:
        raise CommandError(str(error)) from error


def _refuse_transactions() -> None:
    """Raise `ConfigurationError` inside of `transaction.atomic`.

    The transaction would be committed after the release of the lock.
    """
    for connection in connections.all(initialized_only=True):
        # The transactions that Django opens around a test are allowed, because Django rolls them
        # back.
        if any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks):
            raise ConfigurationError(
                f"a transaction of the database {connection.alias!r} is open around the lock, and"
                " would be committed after its release; write"
                " @transaction.non_atomic_requests above @locked, and open the transaction in"
                " the view"
            )


def _forget(*, setting: str, **_: object) -> None:
    """Close the manager when a test overrides its setting."""
    if setting == _NAME and (redlock := _managers.pop(_NAME, None)) is not None:
        redlock.close()


def _after_fork() -> None:
    global _making
    # A thread of the parent may have held the old mutex at the fork. In the child, no thread would
    # release that mutex.
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
setting_changed.connect(_forget)
