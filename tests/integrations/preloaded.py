"""An app for gunicorn with preload: the master opens the manager, and holds a lock, before it forks
its workers.
"""

from __future__ import annotations

import os
from typing import Any

from flask import Flask

from aioredlock_ng.integrations.flask import init_redlock, locked
from tests.integrations.queue_tasks import redlock, stay

mine = redlock.open().lock("master").acquire()
app = Flask(__name__)
init_redlock(app, redlock)


@app.get("/state")
def state() -> dict[str, Any]:
    return {"pid": os.getpid(), "opened": redlock.ready, "lost": mine.lost}


@app.get("/hold/<name>")
@locked("seat")
def hold(name: str) -> dict[str, Any]:
    return {"pid": os.getpid(), "fence": stay(name)}
