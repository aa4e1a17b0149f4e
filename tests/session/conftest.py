"""A cluster in a few words; teardown checks the invariants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpusched.testing import invariants
from gpusched.testing.given import Given


@pytest.fixture
def given() -> Iterator[Given]:
    """An empty cluster under the default policy."""
    cluster = Given()
    yield cluster
    assert invariants.check(cluster.objects(), now=cluster.now) == []
