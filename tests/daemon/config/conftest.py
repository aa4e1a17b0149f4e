"""Connections matter here: daemons speak HTTP with the cluster."""

from __future__ import annotations

import pytest


@pytest.fixture
def connections_matter() -> bool:
    """See ``tests/daemon/conftest.py``."""
    return True
