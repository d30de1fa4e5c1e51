"""Run where arq is: a worker does a job that takes too long, and one whose lock is taken away; says
what came of them.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from arq import create_pool, func
from arq.worker import Worker

from examples import arq_app

broken_off: list[str] = []


@arq_app.redlock.guard("job:slow")
async def slow(context: dict[str, Any]) -> None:
    await asyncio.sleep(40)


@arq_app.redlock.guard("account:{account}")
async def taken_away(account: str, amount: int) -> None:
    if not broken_off:
        await arq_app.redlock.force_release(f"account:{account}")
        try:
            await asyncio.sleep(40)
        finally:
            broken_off.append("broken off")
    broken_off.append(f"{account} {amount}")


async def main() -> None:
    arq_app.add = taken_away
    queue = await create_pool(arq_app.BROKER)
    late = await queue.enqueue_job("slow")
    lost = await queue.enqueue_job("deposit", "ann", 7)
    assert late is not None
    assert lost is not None
    worker = Worker(
        functions=[func(slow, timeout=0.3), arq_app.deposit],
        redis_settings=arq_app.BROKER,
        on_startup=arq_app.open_redlock,
        on_shutdown=arq_app.close_redlock,
        burst=True,
        max_tries=5,
        handle_signals=False,
        poll_delay=0.1,
    )
    await worker.main()
    timed_out, done = await late.result_info(), await lost.result_info()
    sys.stdout.write(f"slow: {timed_out.result!r}\nlost: {broken_off} {done.job_try}\n")
    await worker.close()
    await queue.aclose()


if __name__ == "__main__":
    asyncio.run(main())
