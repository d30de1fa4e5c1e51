"""Transfers between accounts.

Both accounts are locked together, all or nothing. No request waits for one account
while it holds the other.

Run it with as many processes as you like:

    AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 \
        python examples/aiohttp_app.py
    curl -X POST 'http://127.0.0.1:8080/transfer?from=ann&to=bob&amount=5'
"""

import asyncio

from aiohttp import web

from aioredlock_ng.integrations.aiohttp import locked, redlock_ctx

# Stands for your database: money per account. Reading and writing are two steps, and
# other requests run in between.
balances: dict[str, int] = {"ann": 100, "bob": 100, "cid": 100}


# The answer is 423 if an account stays locked for five seconds. It is 503 without a
# quorum, and after a loss.
@locked(
    "account:{from}", "account:{to}", query={"from": str, "to": str}, blocking_timeout=5
)
async def transfer(request: web.Request) -> web.Response:
    source, target = request.query["from"], request.query["to"]
    amount = int(request.query["amount"])
    if source == target or not {source, target} <= balances.keys():
        raise web.HTTPBadRequest(text="two different accounts that exist, please")
    before = balances[source], balances[target]
    if before[0] < amount:
        raise web.HTTPConflict(text=f"{source} has only {before[0]}")
    # The bookkeeping.
    await asyncio.sleep(0.005)
    balances[source], balances[target] = before[0] - amount, before[1] + amount
    return web.json_response({source: balances[source], target: balances[target]})


def create_app() -> web.Application:
    app = web.Application()
    app.cleanup_ctx.append(redlock_ctx())
    app.add_routes([web.post("/transfer", transfer)])
    return app


if __name__ == "__main__":
    web.run_app(create_app(), host="127.0.0.1")
