"""The Lua scripts, the requests that call them, and the decoders of their replies.

The package contains the protocol of each script, but opens no connection. docs/code-map.md lists
the layers of the library, and calls these layers floors. This package is floor 1.
"""

from aioredlock_ng._scripts.form import Form
from aioredlock_ng._scripts.requests import Command, Request
from aioredlock_ng._scripts.script import Script

__all__ = ["Command", "Form", "Request", "Script"]
