"""How often pods of a class run or wait does not depend on which gangs a snapshot shows."""

from __future__ import annotations

from gpusched.api.pod.pod import PodPhase
from gpusched.testing.authors import cluster_under


class Counts:
    """A policy that notes how many GPUs pods ask for, with their numbers."""

    name, api = "counts", 1

    def __init__(self):
        self.seen = []

    def open(self, _hooks, view):
        """Note them."""
        self.seen.append(sorted((pod.gpus, count) for pod, count in view.pod_classes_by_frequency))


def test_pods_that_run_count_in_every_session():
    """Given gangs that run, of which nothing is to be told in the second session, then both count the same."""
    counts = Counts()
    c = cluster_under(counts).nodes(1, gpus=8)
    for slot in range(3):
        c.pod(
            f"runs-{slot}", gpus=1, node="node-0", slots=1 << slot, plan="p",
            scheduled=c.now - 5, phase=PodPhase.RUNNING,
        )  # fmt: skip
    c.gang("waits", pods=2, gpus=8)
    for _ in range(2):
        c.session_cache.forget_all()
        c.when.one_session()
    assert counts.seen == [[(1, 3), (8, 2)]] * 2
