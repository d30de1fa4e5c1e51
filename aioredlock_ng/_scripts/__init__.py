"""The Lua scripts, the requests that call them, and the decoders of their replies.

This is the first floor. It knows the protocol of each script, and opens no connection.
"""

from aioredlock_ng._scripts.form import Form
from aioredlock_ng._scripts.requests import Command, Request
from aioredlock_ng._scripts.script import Script

__all__ = ["Command", "Form", "Request", "Script"]
