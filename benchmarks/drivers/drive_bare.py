"""Drive the bare client of `benchmarks.floor`."""

from __future__ import annotations

from typing import Any

import load
from drive_floor import Client

from benchmarks.floor import Bare


async def connect(task: dict[str, Any]) -> Client:
    return Client(await Bare.connect(task["urls"]), task["ttl"])


if __name__ == "__main__":
    load.main(connect)
