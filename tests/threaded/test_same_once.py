"""Run the tests of `once` for managers with `thread=True`.

Every test in this module has a rig.
"""

from __future__ import annotations

import pytest

from tests.engine import test_once
from tests.threaded.test_same_contract import cases_of

pytestmark = [pytest.mark.virtual_time, pytest.mark.full]

globals().update(cases_of(test_once))
