"""`python -m tests.model`; all of it is in `command`, since processes of a pool cannot import from
here.
"""

import sys

from tests.model.command import main

if __name__ == "__main__":
    sys.exit(main())
