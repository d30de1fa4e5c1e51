"""The only code that uses a socket: connections, outboxes, and the merging of calls.

From the bottom up, `joint` sends several calls as one, and `outbox` collects the requests of one
tick. `sending` and `receiving` are the two halves of a `Channel`.
"""

from aioredlock_ng._nodes.channel.outbox import Outbox
from aioredlock_ng._nodes.channel.receiving import Channel
from aioredlock_ng._nodes.channel.sinks import Belated, Subscription

__all__ = ["Belated", "Channel", "Outbox", "Subscription"]
