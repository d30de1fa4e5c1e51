"""A shop on Flask. A seat is sold once, with any number of servers.

export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
flask --app examples.flask_app run & curl -X POST http://127.0.0.1:5000/seats/12
"""

from flask import Flask, jsonify

from aioredlock_ng.integrations.flask import get_redlock, init_redlock, locked

seats = {}
"""Stands for your database."""

app = Flask(__name__)
# The nodes are those of AIOREDLOCK_NG_NODES, or of app.config["AIOREDLOCK_NG"].
init_redlock(app)


# A second request for the same seat is answered by 423 Locked.
@app.post("/seats/<int:seat>")
@locked("seat:{seat}")
def book(seat):
    if seat in seats:
        return jsonify(sold=True), 409
    lease = get_redlock().current_lease
    # Raises LockLost after a loss, and the client receives 503. No I/O.
    lease.check()
    seats[seat] = lease.fence
    return jsonify(seat=seat, fence=lease.fence)


@app.get("/healthz")
def healthz():
    redlock = get_redlock()
    # A process that has not used the manager yet opens it here.
    redlock.open()
    return jsonify(ready=redlock.ready), 200 if redlock.ready else 503
