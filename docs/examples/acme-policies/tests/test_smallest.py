"""The action, between two shipped ones."""

from __future__ import annotations

import pytest
from acme_policies.smallest import Smallest

from gpusched.testing.authors import cluster_under, repeats


@pytest.mark.parametrize(
    ("actions", "started"),
    [
        (("enqueue", Smallest(), "allocate"), ["small"]),
        (("enqueue", "allocate"), ["large"]),
    ],
)
def test_the_smaller_gang_goes_first(actions, started):
    """The older gang would fill the only node; behind the action it has to wait."""
    c = cluster_under(actions=actions).nodes(1, gpus=8).queue("a")
    c.gang("large", pods=2, gpus=4, queue="a", created=1.0)
    c.gang("small", pods=1, gpus=1, queue="a", created=2.0)
    c.when.bound()
    assert c.then.started() == started
    assert c.then.faults() == ()
    assert repeats(c)
