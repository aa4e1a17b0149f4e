"""Classes of pods that are equal in what a hook reads share its answers."""

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


def rule_between_pods(asked: list[str], *, reads: tuple[str, ...] | None, looks_at: str) -> Any:
    """A policy that notes of which classes it is asked whether its rule between pods concerns them."""

    @attrs.frozen
    class Ruling:
        name: ClassVar[str] = "ruling"
        api: ClassVar[int] = 1

        def open(self, hooks, _view):
            def concerns(pod_class):
                asked.append(str(getattr(pod_class, looks_at)))
                return False

            hooks.pair_filter("are odd", lambda _pod: None, concerns=concerns, reads=reads)
            hooks.pair_score(lambda _pod: None, concerns=concerns, reads=reads)

    return Ruling()


@pytest.mark.parametrize(("reads", "times"), [(("spread",), 1), (None, 3)])
def test_a_rule_between_pods_is_asked_once_for_classes_that_are_equal_in_what_it_reads(
    reads, times
):
    """Given three classes with other requests, then a rule that reads none of these is asked once."""
    asked: list[str] = []
    c = cluster_under(rule_between_pods(asked, reads=reads, looks_at="spread"))
    c.nodes(2, gpus=8)
    for number in range(3):
        c.gang(f"g{number}", pods=1, gpus=1, cpu=100 + number)
    c.when.one_session()
    assert len(asked) == 2 * times  # the filter and the score
    assert c.then.faults() == ()


def test_a_rule_between_pods_that_reads_more_than_it_says_fails_where_it_is_tried():
    """Given a rule that declares too little, then trials for authors find it."""
    c = cluster_under(rule_between_pods([], reads=("spread",), looks_at="requests"))
    c.nodes(2, gpus=8).gang("g", pods=1, gpus=1)
    c.when.one_session()
    assert "requests" in " ".join(c.then.faults())


def test_undeclared_and_declared_rules_stand_in_the_order_of_their_plugins():
    """Given rules that say what they read and others, then a pod's are asked in their order."""
    asked: list[str] = []

    @attrs.frozen
    class Both:
        name: ClassVar[str] = "both"
        api: ClassVar[int] = 1

        def open(self, hooks, _view):
            for number, reads in enumerate((None, (), None, ())):

                def rule(_pod, number=number):
                    asked.append(str(number))

                hooks.pair_filter(f"{number}", rule, concerns=lambda _class: True, reads=reads)

    c = cluster_under(Both())
    c.nodes(2, gpus=8).gang("g", pods=1, gpus=1)
    c.when.one_session()
    assert asked == ["0", "1", "2", "3"]
