"""A shop on Flask with an application factory. The views exist before any app.

export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
flask --app examples.flask_factory run & curl -X POST http://127.0.0.1:5000/seats/12
"""

from flask import Blueprint, Flask, jsonify

from aioredlock_ng.integrations.flask import get_redlock, init_redlock, locked

shop = Blueprint("shop", __name__)


# The lock comes from the manager of the app that receives the request.
@shop.post("/seats/<int:seat>")
@locked("seat:{seat}")
def book(seat):
    return jsonify(seat=seat, fence=get_redlock().current_lease.fence)


def create_app(settings=None):
    app = Flask(__name__)
    app.config.from_mapping(settings or {})
    # The nodes are those of app.config["AIOREDLOCK_NG"], or of AIOREDLOCK_NG_NODES.
    init_redlock(app)
    app.register_blueprint(shop)
    return app
