"""What ``when`` promises comes so: asked, submitted to the daemon, and watched in virtual time."""

from __future__ import annotations

import pytest

from tests.advice.submission.promises import keep_promise


@pytest.mark.parametrize("seed", [0, 5, 6, 7, 12, 13, 18])
def test_a_promise_is_kept(seed):
    """Given clusters and submissions of all kinds of starts, then time and racks are as promised."""
    assert keep_promise(seed).fault == ""
