"""Connections are not what is tested here: requests are handed over inside the loop."""

from __future__ import annotations

import pytest


@pytest.fixture
def connections_matter() -> bool:
    """See ``tests/daemon/conftest.py``."""
    return False
