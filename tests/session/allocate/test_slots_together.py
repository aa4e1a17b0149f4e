"""Members of a gang that share a node get slots that are best for all of them."""

from __future__ import annotations

import pytest


def spans(layout, slots):
    """Islands beyond the first."""
    return sum(1 for island in layout if set(island) & set(slots)) - 1


@pytest.mark.parametrize(
    ("layout", "sizes", "least"),
    [
        ([[0, 1, 2], [3, 4, 5, 6], [7]], (5, 3), 1),
        ([[0, 1], [2, 3, 4], [5, 6, 7]], (4, 3, 1), 1),
        ([[0, 1], [2, 3, 4], [5, 6, 7]], (3, 3, 2), 0),
    ],
)
def test_roles_of_several_sizes_share_out_the_islands(given, layout, sizes, least):
    """What is best for the largest alone would break up the islands of the next ones."""
    c = given.nodes(1, gpus=8, layout=layout)
    c.group("g", min_member=len(sizes))
    for number, gpus in enumerate(sizes):
        c.pod(f"p{number}", gpus=gpus, group="g", role=f"r{number}")
    c.when.bound()
    assert sum(spans(layout, each) for each in c.then.slots().values()) == least
