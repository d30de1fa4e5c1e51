"""The suite."""

import pytest

# Helpers assert too, and are to say what they saw.
pytest.register_assert_rewrite("tests.support", "tests.integration")
