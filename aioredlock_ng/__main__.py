"""Lets `python -m aioredlock_ng` run the command line; never does anything by being imported."""

from __future__ import annotations

from aioredlock_ng.cli import main

if __name__ == "__main__":
    main()
