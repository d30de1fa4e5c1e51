"""Run the command line for `python -m aioredlock_ng`."""

from __future__ import annotations

from aioredlock_ng.cli import main

if __name__ == "__main__":
    main()
