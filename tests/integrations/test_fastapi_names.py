"""Test the names of the locks of FastAPI routes.

One value means one lock, however the client writes that value. A route that its lock does not fit
is refused at start.
"""

import functools
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NewType

import pytest
from fastapi import APIRouter, Body, Depends, FastAPI, Header, Path, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from aioredlock_ng import ConfigurationError, Lease, Redlock, sync
from aioredlock_ng.integrations.fastapi import (
    LockDependency,
    check_locks,
    get_redlock,
    lock_for,
    redlock_lifespan,
    semaphore_for,
)
from tests.integrations.labels import refusal
from tests.integrations.serving import fastapi_client, held
from tests.support.node_set import NodeSet


class Size(StrEnum):
    SMALL = "small"


class Item(BaseModel):
    sku: str
    price: float = 1.0


class Order(BaseModel):
    id: int
    item: Item
    tags: list[str] = []

    @property
    def shop(self) -> str:
        return f"shop-{self.id}"


class User(BaseModel):
    id: uuid.UUID


async def current_user(x_user: Annotated[uuid.UUID, Header()]) -> User:
    return User(id=x_user)


OrderId = NewType("OrderId", int)
Tenant = NewType("Tenant", str)


async def price_text(price: float | None = None) -> str:
    return "free" if price is None else f"{price:.2f}"


ID = uuid.UUID(int=0xABC)


def names_app() -> FastAPI:
    """Every endpoint answers the names of the locks that its request holds."""
    app = FastAPI(lifespan=redlock_lifespan())

    def locking(
        path: str, lock: LockDependency, method: str = "GET"
    ) -> Callable[[Callable[..., Any]], Any]:
        return app.api_route(path, methods=[method], dependencies=[Depends(lock, scope="function")])

    Lock = Annotated[Redlock, Depends(get_redlock)]  # noqa: N806

    def told(redlock: Redlock) -> list[str]:
        return [str(name) for lease in redlock.leases for name in lease.resources]

    @locking("/int/{order_id}", lock_for("order:{order_id}"))
    async def by_int(order_id: int, redlock: Lock) -> list[str]:
        return told(redlock)

    @locking("/uuid/{order_id}", lock_for("order:{order_id}"))
    async def by_uuid(order_id: Annotated[uuid.UUID, Path()], redlock: Lock) -> list[str]:
        return told(redlock)

    @locking("/enum/{size}", lock_for("size:{size}"))
    async def by_enum(size: Size, redlock: Lock) -> list[str]:
        return told(redlock)

    @locking("/converted/{number:int}", lock_for("number:{number}"))
    async def by_converter(request: Request, redlock: Lock) -> list[str]:
        return told(redlock)

    @locking("/alias/{id}", lock_for("order:{order_id}"))
    async def by_alias(order_id: Annotated[int, Path(alias="id")], redlock: Lock) -> list[str]:
        return told(redlock)

    @locking("/query", lock_for("cart:{tenant}:{user}"))
    async def by_query(
        user: Annotated[str, Query(alias="who", min_length=1)], redlock: Lock, tenant: str = "main"
    ) -> list[str]:
        return told(redlock)

    @locking("/old", lock_for("{a}/{b}"))
    async def by_old_style(
        redlock: Lock, a: int = Query(), b: int = Query(7, alias="bee")
    ) -> list[str]:
        return told(redlock)

    @locking(
        "/model",
        lock_for("order:{order.id}:{order.item.sku}", "shop:{order.shop}", order=Order),
        "POST",
    )
    async def by_model(order: Order, redlock: Lock) -> list[str]:
        return told(redlock)

    @locking(
        "/fields", lock_for("{a}-{b}", a=Annotated[int, Body()], b=Annotated[str, Body()]), "POST"
    )
    async def by_fields(
        a: Annotated[int, Body()], b: Annotated[str, Body()], redlock: Lock
    ) -> list[str]:
        return told(redlock)

    @locking("/user", lock_for("cart:{user.id}", user=Depends(current_user)))
    async def by_dependency(
        user: Annotated[User, Depends(current_user)], redlock: Lock
    ) -> list[str]:
        return told(redlock)

    @locking("/page", lock_for("page:{page.sku}", page=Annotated[Item, Query()]))
    async def by_query_model(page: Annotated[Item, Query()], redlock: Lock) -> list[str]:
        return told(redlock)

    @locking("/header", lock_for("tenant:{x_tenant}", x_tenant=Annotated[str, Header()]))
    async def by_header(redlock: Lock) -> list[str]:
        return told(redlock)

    @locking(
        "/new/{order_id}", lock_for("order:{order_id}:{tenant}", tenant=Annotated[Tenant, Header()])
    )
    async def by_new_type(
        order_id: OrderId, tenant: Annotated[Tenant, Header()], redlock: Lock
    ) -> list[str]:
        return told(redlock)

    @locking("/literal/{side}/{size}", lock_for("side:{side}:{size}"))
    async def by_literal(
        side: Literal["buy", "sell"], size: Literal[Size.SMALL], redlock: Lock
    ) -> list[str]:
        return told(redlock)

    @locking("/price", lock_for("price:{price}", price=Depends(price_text)))
    async def by_text(redlock: Lock, price: float | None = None) -> list[str]:
        return told(redlock)

    @locking("/transfer/{source}/{target}", lock_for("account:{source}", "account:{target}"))
    async def transfer(source: int, target: int, redlock: Lock) -> list[str]:
        return told(redlock)

    return app


GIVEN = [
    ("GET", "/int/42", {}, ["order:42"]),
    ("GET", "/int/042", {}, ["order:42"]),
    ("GET", "/int/+42", {}, ["order:42"]),
    ("GET", f"/uuid/{ID}", {}, [f"order:{ID}"]),
    ("GET", f"/uuid/{str(ID).upper()}", {}, [f"order:{ID}"]),
    ("GET", f"/uuid/{ID.hex}", {}, [f"order:{ID}"]),
    ("GET", "/enum/small", {}, ["size:small"]),
    ("GET", "/converted/007", {}, ["number:7"]),
    ("GET", "/alias/07?id=8", {}, ["order:7"]),
    ("GET", "/query?who=ann", {}, ["cart:main:ann"]),
    ("GET", "/query?tenant=t&who=a%3Ab", {}, ["cart:t:a:b"]),
    ("GET", "/query?tenant=t&who=first&who=last", {}, ["cart:t:last"]),
    ("GET", "/old?a=01", {}, ["1/7"]),
    ("GET", "/old?a=01&bee=2", {}, ["1/2"]),
    (
        "POST",
        "/model",
        {"json": {"id": "42", "item": {"sku": "x"}}},
        ["order:42:x", "shop:shop-42"],
    ),
    ("POST", "/fields", {"json": {"a": "4", "b": "x-y"}}, ["4-x-y"]),
    ("GET", "/user", {"headers": {"x-user": ID.hex}}, [f"cart:{ID}"]),
    ("GET", "/page?sku=x", {}, ["page:x"]),
    ("GET", "/header", {"headers": {"x-tenant": "acme"}}, ["tenant:acme"]),
    ("GET", "/new/07", {"headers": {"tenant": "t"}}, ["order:7:t"]),
    ("GET", "/literal/buy/small", {}, ["side:buy:small"]),
    ("GET", "/price", {}, ["price:free"]),
    ("GET", "/price?price=1.0", {}, ["price:1.00"]),
    ("GET", "/transfer/1/2", {}, ["account:1", "account:2"]),
    ("GET", "/transfer/1/01", {}, ["account:1"]),
]

REFUSED = [
    ("GET", "/int/x", {}, ["path", "order_id"]),
    ("GET", "/literal/hold/small", {}, ["path", "side"]),
    ("GET", "/query", {}, ["query", "who"]),
    ("GET", "/query?who=", {}, ["query", "who"]),
    ("GET", "/query?tenant=a%3Ab&who=ann", {}, ["lock"]),
    ("GET", "/old?a=1&bee=x", {}, ["query", "bee"]),
    ("POST", "/fields", {"json": {"a": 1, "b": "x" * 70_000}}, ["lock"]),
    (
        "POST",
        "/fields",
        {"content": rb'{"a": 1, "b": "\ud800"}', "headers": {"content-type": "application/json"}},
        ["lock"],
    ),
    ("POST", "/model", {"json": {"id": "x", "item": {"sku": "x"}}}, ["body", "id"]),
    ("POST", "/model", {}, ["body"]),
    ("GET", "/user", {}, ["header", "x-user"]),
]


async def test_one_value_is_one_lock_however_it_is_written(nodes: NodeSet) -> None:
    async with fastapi_client(names_app()) as client:
        for method, url, more, names in GIVEN:
            answer = await client.request(method, url, **more)
            assert (answer.status_code, answer.json()) == (200, names), url
    assert nodes.keys() == [set()] * 3


async def test_values_that_make_no_name_are_the_clients_mistake(nodes: NodeSet) -> None:
    async with fastapi_client(names_app()) as client:
        for method, url, more, where in REFUSED:
            answer = await client.request(method, url, **more)
            assert answer.status_code == 422, url
            assert where in [error["loc"] for error in answer.json()["detail"]], answer.json()
    assert nodes.keys() == [set()] * 3


async def test_a_separator_in_a_value_never_makes_two_requests_share_a_name(nodes: NodeSet) -> None:
    async with fastapi_client(names_app()) as client:
        answers = [await client.get("/query", params=values) for values in (
            {"tenant": "a", "who": "b:c"}, {"tenant": "a:b", "who": "c"},
        )]  # fmt: skip
    assert [answer.status_code for answer in answers] == [200, 422]
    assert answers[1].json()["detail"][0]["msg"] == "{tenant} must not contain ':'"


async def test_a_refused_request_names_the_label_of_the_request_that_holds_the_lock(
    nodes: NodeSet, elsewhere: Redlock
) -> None:
    app = FastAPI(lifespan=redlock_lifespan())
    locks = {
        "text": lock_for(
            "o:{order_id}",
            owner="request {x_request_id} for {order_id}",
            x_request_id=Annotated[str, Header()],
        ),
        "path": lock_for("o:{order_id}", owner="{request.method} {request.url.path}"),
        "function": lock_for(
            "o:{order_id}",
            owner=lambda request, order_id: f"{request.headers['x-request-id']}-{order_id}",
        ),
        "model": lock_for("o:7", owner=lambda user: f"user {user.id}", user=Depends(current_user)),
        "reader": lock_for("o:{order_id}", shared=True, owner="reader {order_id}"),
    }

    async def told(order_id: int) -> str:
        return await refusal(elsewhere, f"o:{order_id}")

    for name, lock in locks.items():
        app.post(f"/{name}/{{order_id}}", dependencies=[Depends(lock, scope="function")])(told)
    user = uuid.UUID(int=7)
    async with fastapi_client(app) as client:
        for name, label in (
            ("text", "request abc for 7"),
            ("path", "POST /path/7"),
            ("function", "abc-7"),
            ("model", f"user {user}"),
            ("reader", "reader 7"),
        ):
            answer = await client.post(
                f"/{name}/7", headers={"x-request-id": "abc", "x-user": str(user)}
            )
            assert f"held by {label}" in answer.json()


async def test_a_request_whose_text_cannot_be_a_label_is_answered_by_422(nodes: NodeSet) -> None:
    app = FastAPI(lifespan=redlock_lifespan())
    by_text = lock_for("o", owner="{name}")
    by_function = semaphore_for("s", 2, owner=lambda request: request.query_params["name"])

    @app.post("/text", dependencies=[Depends(by_text, scope="function")])
    @app.post("/function", dependencies=[Depends(by_function, scope="function")])
    async def endpoint(name: str) -> None: ...

    async with fastapi_client(app) as client:
        for path in ("/text", "/function"):
            refused = await client.post(path, params={"name": "a\n"})
            assert refused.status_code == 422
            assert "not possible as a lock's owner: owner must be one line of text" in refused.text
            assert (await client.post(path, params={"name": "a"})).status_code == 200
    assert held(nodes) == set()


def test_a_lock_around_a_websocket_is_refused_at_start() -> None:
    app = FastAPI()

    @app.websocket("/edit/{name}", dependencies=[Depends(lock_for("edit:{name}"))])
    async def edit(name: str) -> None: ...

    with pytest.raises(
        ConfigurationError,
        match=r"/edit/\{name\}: .*a WebSocket cannot receive the lock's error answers",
    ):
        check_locks(app)


@pytest.mark.parametrize("scope", ["function", None])
@pytest.mark.parametrize("kind", ["async", "def", "wrapped"])
def test_a_lock_that_ends_before_a_yielding_endpoint_begins_is_refused_at_start(
    kind: str, scope: Any
) -> None:
    async def lines(name: str) -> AsyncIterator[str]:
        yield name

    def sync_lines(name: str) -> Iterator[str]:
        yield name

    @functools.wraps(lines)
    def wrapped(*args: Any, **kwargs: Any) -> AsyncIterator[str]:
        return lines(*args, **kwargs)

    app = FastAPI()
    lock = Depends(lock_for("export:{name}"), scope=scope)
    endpoint: Any = {"async": lines, "def": sync_lines, "wrapped": wrapped}[kind]
    app.get("/export/{name}", dependencies=[lock], response_class=StreamingResponse)(endpoint)
    if scope is None:
        check_locks(app)
    else:
        with pytest.raises(
            ConfigurationError, match=r"/export/\{name\}: lock_for.*`yield` .* leave the scope out"
        ):
            check_locks(app)


def route(
    path: str, lock: LockDependency, endpoint: Callable[..., Any], method: str = "POST"
) -> FastAPI:
    app = FastAPI()
    app.api_route(path, methods=[method], dependencies=[Depends(lock, scope="function")])(endpoint)
    return app


async def pay(order_id: int) -> None: ...
async def at(when: datetime, price: float | None = None, tenant: str | None = None) -> None: ...
async def order(order: Order, note: str = "") -> None: ...
async def paged(page: Annotated[Item, Query()]) -> None: ...
async def renamed(
    who: Annotated[str, Query(validation_alias="name")],
    tenant: Annotated[str, Header(alias="x-shop")],
    size: str = Query(default_factory=str),
) -> None: ...
async def chosen(side: Annotated[Literal["a", 1], Header()], odd: Literal["a", None]) -> None: ...
async def mine(
    user: Annotated[User, Depends(current_user)], tags: Annotated[list[str], Query()]
) -> None: ...


@pytest.mark.parametrize(
    ("path", "lock", "endpoint", "told"),
    [
        (
            "/{order_id}",
            lock_for("o:{ordr_id}"),
            pay,
            r"\{ordr_id\} is not a parameter of pay\(\); there are: order_id",
        ),
        ("/{order_id}", lock_for("o:{order_id.hex}"), pay, "not a plain"),
        (
            "/{order_id}",
            lock_for("o:{order_id}", order_id=str),
            pay,
            r"is <class 'str'> here, but not in pay\(\); declare the same: order_id=int",
        ),
        (
            "/",
            lock_for("o:{when}"),
            at,
            (
                "not a plain .*; use a dependency that returns such a value: "
                r"lock_for\(\.\.\., when=Depends\(\.\.\.\)"
            ),
        ),
        (
            "/",
            lock_for("o:{when.year}"),
            at,
            r"declare the value, like lock_for\(\.\.\., when=datetime",
        ),
        (
            "/",
            lock_for("o:{price}"),
            at,
            r"not a plain .*; use a dependency .* price=Depends\(\.\.\.\)",
        ),
        (
            "/",
            lock_for("o:{price}", price=float | None),
            at,
            r"price has a default in at\(\).* price=Depends\(\.\.\.\)",
        ),
        (
            "/",
            lock_for("o:{tenant}"),
            at,
            r"not a plain .*; use a dependency .* tenant=Depends\(\.\.\.\)",
        ),
        (
            "/",
            lock_for("o:{when}", when=datetime),
            at,
            r"must be a str, .*, not datetime; .* when=Depends\(\.\.\.\)",
        ),
        (
            "/",
            lock_for("o:{side}"),
            chosen,
            r"like lock_for\(\.\.\., side=Annotated\[Literal\['a', 1\], Header\(\)\]",
        ),
        ("/", lock_for("o:{odd}"), chosen, r"not a plain .*; use a dependency"),
        (
            "/",
            lock_for("o:{order.id}"),
            order,
            r"declare the value, like lock_for\(\.\.\., order=Order\)",
        ),
        ("/", lock_for("o:{order}"), order, "order=Order"),
        ("/", lock_for("o:{order}", order=Order), order, "must be a str"),
        (
            "/",
            lock_for("o:{order.price}", order=Order),
            order,
            r"Order has no price; it has: id, item, tags",
        ),
        ("/", lock_for("o:{order.item.price}", order=Order), order, "must be a str"),
        ("/", lock_for("o:{order.tags}", order=Order), order, "must be a str"),
        (
            "/",
            lock_for("o:{it.sku}", it=Item),
            order,
            r"\{it.sku\} is not a parameter of order\(\); there are: note, order",
        ),
        ("/", lock_for("o:{user.id}"), mine, r"user=Depends\(current_user\)"),
        (
            "/",
            lock_for("o:{tags}"),
            mine,
            r"use a dependency that returns such a value: lock_for\(\.\.\., tags=Depends\(\.\.\.\)",
        ),
        (
            "/",
            lock_for("o:{page.sku}", page=Item),
            paged,
            r"declare the same: page=Annotated\[Item, Query\(\)\]",
        ),
        ("/", lock_for("o:{who}"), renamed, r"\{who\} of renamed\(\) has a validation_alias"),
        ("/", lock_for("o:{size}"), renamed, r"\{size\} of renamed\(\) has .* a default_factory"),
        (
            "/",
            lock_for("o:{tenant}", tenant=Annotated[str, Header()]),
            renamed,
            r"but not in renamed\(\)",
        ),
        (
            "/",
            lock_for("o:{note}", note=str),
            order,
            r"note has a default in order\(\).* note=Depends\(\.\.\.\)",
        ),
        (
            "/",
            lock_for("o:", owner="{user}"),
            order,
            r"\{user\} is not a parameter of order\(\); there are: note, order",
        ),
        (
            "/",
            lock_for("o:", owner=lambda user, request: ""),
            order,
            r"\{user\} is not a parameter of order\(\)",
        ),
        (
            "/",
            lock_for("o:", owner=lambda order: order.id),
            order,
            "declare the value, like .* order=Order",
        ),
        (
            "/",
            lock_for("o:", owner="{order.price}", order=Order),
            order,
            "Order has no price; it has: id, item, tags",
        ),
    ],
)
def test_a_lock_that_does_not_fit_its_route_is_refused_at_start(
    path: str, lock: LockDependency, endpoint: Callable[..., Any], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told) as error:
        check_locks(route(path, lock, endpoint))
    assert str(error.value).startswith(f"{path}: lock_for('o:")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: lock_for(""), "must be a str"),
        (lambda: lock_for("o:{id"), "expected"),
        (lambda: lock_for("o:{a}{b}"), "separator"),
        (lambda: lock_for("o:{id}", held_status=503), "held_status must be 409 or 423"),
        (lambda: lock_for("o:{id}", retry_after=0.5), "retry_after must be whole seconds"),
        (lambda: lock_for("o:{id}", retry_after=-1), "retry_after must be whole seconds"),
        (
            lambda: lock_for("o:{id}", blocking_timout=1),
            "blocking_timout, which is neither an option",
        ),
        (
            lambda: lock_for("o:{id}", user=str, owner="{usr}"),
            "user, which is neither an option .* of the lock's name or owner",
        ),
        (lambda: lock_for("o:{id}", owner="a\n{id}"), "owner must be one line of text"),
        (
            lambda: lock_for("o:{owner}", owner=Depends(current_user)),
            "owner must be a text like .*, a function .*; got Depends",
        ),
        (lambda: lock_for("o:{owner}", owner=User), "owner must be a text like"),
        (
            lambda: semaphore_for("o", 2, owner=False),  # type: ignore[arg-type]
            "make the manager with owner=False",
        ),
        (
            lambda: lock_for("o:{id}", ttl=-1),
            "ttl must be a finite positive number of seconds, got -1",
        ),
        (
            lambda: lock_for("o:{id}", blocking_timeout="5"),
            "blocking_timeout must be a number of seconds, not str",
        ),  # type: ignore[arg-type]
        (
            lambda: lock_for("o:{id}", blocking_timeout=-1),
            "blocking_timeout must be a finite number of seconds, zero or more",
        ),
        (
            lambda: lock_for("o:{id}", max_hold=0),
            "max_hold must be a finite positive number of seconds, got 0",
        ),
        (
            lambda: lock_for("o:{id}", min_hold=0),
            "min_hold must be a finite positive number of seconds, got 0",
        ),
        (
            lambda: redlock_lifespan("redis://:secret@x"),
            r"redlock_lifespan\(\) takes an aioredlock_ng\.Redlock, not builtins\.str",
        ),  # type: ignore[arg-type]
        (
            lambda: redlock_lifespan(sync.Redlock(["redis://x"])),
            r"takes an aioredlock_ng\.Redlock, not aioredlock_ng\.sync\..*Redlock: write",
        ),  # type: ignore[arg-type]
        # FastAPI(lifespan=redlock_lifespan) makes this call at its start.
        (
            lambda: redlock_lifespan(FastAPI()),  # type: ignore[arg-type]
            r"not fastapi\.applications\.FastAPI: write .*, or redlock_lifespan\(\)",
        ),
    ],
)
def test_invalid_arguments_are_refused_at_the_declaration(
    make: Callable[[], object], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told) as error:
        make()
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("options", [{"ttl": 61.0}, {"ttl": 0.01}])
async def test_options_that_the_manager_refuses_stop_the_app(
    nodes: NodeSet, options: dict[str, Any]
) -> None:
    app = route("/{order_id}", lock_for("o:{order_id}", **options), pay)
    with pytest.raises(
        ConfigurationError,
        match=r"/\{order_id\}: lock_for\('o:\{order_id\}'\): .*" + next(iter(options)),
    ):
        async with redlock_lifespan()(app):
            pass


def test_routers_that_are_included_and_apps_that_are_mounted_are_checked_with_their_paths() -> None:
    def build(name: str) -> FastAPI:
        router, inner, outer = APIRouter(), FastAPI(), FastAPI()
        router.post("/x", dependencies=[Depends(lock_for(f"o:{{{name}}}"), scope="function")])(
            lambda: None
        )
        inner.include_router(router, prefix="/{shop}")
        outer.mount("/{tenant}", inner)
        return outer

    check_locks(build("shop"))
    check_locks(build("tenant"))
    with pytest.raises(ConfigurationError, match=r"/\{shop\}/x: .*there are: .*shop, tenant"):
        check_locks(build("seller"))


async def test_a_lock_of_an_included_router_and_of_a_mounted_app_works(nodes: NodeSet) -> None:
    app, inner, router = FastAPI(lifespan=redlock_lifespan()), FastAPI(), APIRouter()

    @router.get("/{order_id}")
    async def name(
        order_id: int,
        lease: Annotated[Lease, Depends(lock_for("{shop}:{order_id}", shop=str), scope="function")],
        shop: str,
    ) -> str:
        return lease.resource

    app.include_router(router, prefix="/{shop}/orders")
    inner.include_router(router, prefix="/{shop}/orders")
    app.mount("/mounted", inner)
    async with fastapi_client(app) as client:
        assert (await client.get("/s/orders/07")).json() == "s:7"
        assert (await client.get("/mounted/s/orders/07")).json() == "s:7"
