"""What is tested of read-write locks without a thread, for managers with `thread=True`.

Here every test has a rig.
"""

from __future__ import annotations

import pytest

from tests.engine import test_rwlock
from tests.threaded.test_same_contract import cases_of

pytestmark = [pytest.mark.virtual_time, pytest.mark.full]

globals().update(cases_of(test_rwlock))
