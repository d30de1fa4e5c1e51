"""Run the tests of read-write locks for managers with `thread=True`.

Every test in this module has a rig.
"""

from __future__ import annotations

import pytest

from tests.engine import test_rwlock
from tests.threaded.test_same_contract import cases_of

pytestmark = [pytest.mark.virtual_time, pytest.mark.full]

globals().update(cases_of(test_rwlock))
