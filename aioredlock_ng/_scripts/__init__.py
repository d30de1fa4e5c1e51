"""Floor 1: the Lua scripts, the requests that call them and the records that their replies become."""

from aioredlock_ng._scripts.form import Form
from aioredlock_ng._scripts.requests import Command, Request
from aioredlock_ng._scripts.script import Script

__all__ = ["Command", "Form", "Request", "Script"]
