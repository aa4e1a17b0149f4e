"""What pods usually ask for is counted among those that wait and run."""

from __future__ import annotations

from gpusched.arrays.node_usage import DEFAULT_POPULATION


def test_an_empty_cluster_has_the_usual_sizes(given):
    """Nobody says anything: the shares that are known of clusters like this."""
    assert given.cache.take_snapshot(0.0).population == DEFAULT_POPULATION


def test_many_pods_of_one_size_count_most(given):
    """Three hundred of 3 GPUs: they are most; the usual sizes still count a little."""
    c = given.nodes(2, gpus=8).pods("p", 300, gpus=3)
    shares = dict(c.cache.take_snapshot(0.0).population)
    assert shares[3] == 760
    assert {1, 2, 4, 8} <= set(shares)


def test_pods_that_are_gone_do_not_count(given):
    """When they are deleted, all is as it was."""
    c = given.nodes(2, gpus=8).pods("p", 300, gpus=3)
    assert c.cache.take_snapshot(0.0).population != DEFAULT_POPULATION
    for number in range(300):
        c.gone(f"p-{number}")
    assert c.cache.take_snapshot(0.0).population == DEFAULT_POPULATION


def test_slots_are_chosen_for_what_is_usual(given):
    """Where pods of 3 are most, a single one does not break an island of three."""
    c = given.nodes(60, gpus=6)
    for number in range(60):
        for half in (0, 1):
            slots = 0b111 << 3 * half
            c.pod(f"p-{number}-{half}", gpus=3, node=f"node-{number}", slots=slots)
    c.node("odd", gpus=8, layout=[[0, 1, 2], [3, 4, 5, 6], [7]])
    c.pod("t", gpus=1, node="odd", slots=0b10000000)
    c.pod("one", gpus=1)
    c.when.bound()
    assert c.then.slots()["one"] == (3,)
