"""Classes of pods that are equal in what a filter reads share its answers."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import pytest

from gpusched.testing.authors import cluster_under


def policy(asked: list[str], *, reads: tuple[str, ...] | None, looks_at: str) -> Any:
    """A policy whose filter notes what it is asked about, and looks at one field of a class."""

    @attrs.frozen
    class Filtering:
        name: ClassVar[str] = "filtering"
        api: ClassVar[int] = 1

        def open(self, hooks, _view):
            def allows(pod_class, nodes):
                asked.append(str(getattr(pod_class, looks_at)))
                return [True] * len(nodes)

            hooks.node_filter("are odd", allows, reads=reads)

    return Filtering()


@pytest.mark.parametrize(("reads", "times"), [(("tolerations",), 1), (None, 3)])
def test_a_filter_is_asked_once_for_classes_that_are_equal_in_what_it_reads(reads, times):
    """Given three classes with other requests, then a filter that reads none of these is asked once."""
    asked: list[str] = []
    c = cluster_under(policy(asked, reads=reads, looks_at="tolerations"))
    c.nodes(2, gpus=8)
    for number in range(3):
        c.gang(f"g{number}", pods=1, gpus=1, cpu=100 + number)
    c.when.one_session()
    assert len(asked) == times
    assert c.then.faults() == ()


def test_a_filter_that_reads_more_than_it_says_fails_where_it_is_tried():
    """Given a filter that declares too little, then trials for authors find it."""
    c = cluster_under(policy([], reads=("tolerations",), looks_at="requests"))
    c.nodes(2, gpus=8).gang("g", pods=1, gpus=1)
    c.when.one_session()
    assert "requests" in " ".join(c.then.faults())
