"""Connections to servers, and the outbox that packs requests for all connections of a manager.

`outbox` collects the requests of one tick of the event loop, and `joint` merges them. `sending` and
`receiving` are the two halves of a `Channel`.
"""

from aioredlock_ng._nodes.channel.outbox import Outbox
from aioredlock_ng._nodes.channel.receiving import Channel
from aioredlock_ng._nodes.channel.sinks import Belated, Subscription

__all__ = ["Belated", "Channel", "Outbox", "Subscription"]
