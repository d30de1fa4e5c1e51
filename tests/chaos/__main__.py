"""`python -m tests.chaos --duration 60s --seed 1`: see docs/proof.md."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
