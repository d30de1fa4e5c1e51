"""Transfers between accounts: both are locked together, all or nothing, so nobody waits for one with the other in hand.

Run it with as many processes as you like:

    AIOREDLOCK_NG_NODES=redis://127.0.0.1:6381,redis://127.0.0.1:6382,redis://127.0.0.1:6383 \
        python examples/aiohttp_app.py
    curl -X POST 'http://127.0.0.1:8080/transfer?from=ann&to=bob&amount=5'
"""

import asyncio

from aiohttp import web

from aioredlock_ng.integrations.aiohttp import locked, redlock_ctx

# Stands for your database: money per account. Reading and writing are two steps, and others come in between.
balances: dict[str, int] = {"ann": 100, "bob": 100, "cid": 100}


# Busy for five seconds: 423. No quorum, or lost: 503.
@locked("account:{from}", "account:{to}", query={"from": str, "to": str}, blocking_timeout=5)
async def transfer(request: web.Request) -> web.Response:
    source, target, amount = request.query["from"], request.query["to"], int(request.query["amount"])
    if source == target or not {source, target} <= balances.keys():
        raise web.HTTPBadRequest(text="two different accounts that exist, please")
    before = balances[source], balances[target]
    if before[0] < amount:
        raise web.HTTPConflict(text=f"{source} has only {before[0]}")
    await asyncio.sleep(0.005)  # the bookkeeping
    balances[source], balances[target] = before[0] - amount, before[1] + amount
    return web.json_response({source: balances[source], target: balances[target]})


def create_app() -> web.Application:
    app = web.Application()
    app.cleanup_ctx.append(redlock_ctx())
    app.add_routes([web.post("/transfer", transfer)])
    return app


if __name__ == "__main__":
    web.run_app(create_app(), host="127.0.0.1")
