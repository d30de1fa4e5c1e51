"""Run `python -m tests.simulation`.

The code is in `command`, because worker processes cannot import this module.
"""

import sys

from tests.simulation.command import main

if __name__ == "__main__":
    sys.exit(main())
