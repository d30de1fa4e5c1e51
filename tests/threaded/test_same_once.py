"""What is tested of `once` without a thread, for managers with `thread=True`.

Here every test has a rig.
"""

from __future__ import annotations

import pytest

from tests.engine import test_once
from tests.threaded.test_same_contract import cases_of

pytestmark = [pytest.mark.virtual_time, pytest.mark.full]

globals().update(cases_of(test_once))
