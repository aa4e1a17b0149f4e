"""Random crowds of elastic gangs come to rest, and at rest nobody is owed an extra."""

from __future__ import annotations

import random
from collections import Counter

import attrs
import pytest

from gpusched.testing import entities
from tests.populations import one_of
from tests.session.crowds import Crowd, Pair

QUIET = 60
"""Sessions in which a crowd without changes must come to rest."""


@attrs.define
class GrowingCrowd(Crowd):
    """Queues below the root, gangs of pods with one GPU each, and room for some of them."""

    deserved: dict[str, int] = attrs.Factory(dict)

    def start(self) -> None:
        """Nodes, two to four queues that deserve something, and gangs that fill the cluster."""
        rng = self.rng
        self.lingering = rng.choice((0, 0, 1, 2))
        for number in range(rng.randint(1, 3)):
            gpus = rng.choice((4, 8, 8))
            self.gpus += gpus
            self.c.node(f"n{number}", gpus=gpus)
        for number in range(rng.randint(2, 4)):
            name = f"q{number}"
            self.deserved[name] = rng.randint(0, self.gpus // 2)
            self.c.queue(name, limits={"deserved": {entities.GPU: self.deserved[name]}})
            self.leaves.append(name)
        for _ in range(rng.randint(2, 5)):
            self.submit(rng.choice(self.leaves[:2]))

    def submit(self, queue: str = "") -> None:
        """An elastic gang more."""
        rng = self.rng
        name = f"g{self.made}"
        self.made += 1
        pods = rng.randint(1, 8)
        self.about[name] = {"gpus": 1, "priority": rng.choice((0, 0, 0, 10))}
        self.least[name] = rng.randint(1, max(1, pods // 2))
        self.c.group(
            name,
            queue=queue or rng.choice(self.leaves),
            min_member=self.least[name],
            created=self.c.now,
            preemptible=rng.random() < 0.9,
            disruption=rng.choice(("Pod", "Pod", "Pod", "Group")),
        )
        for rank in range(pods):
            self._pod(name, rank)

    def reform(self) -> None:
        """A queue deserves something else."""
        name = self.rng.choice(self.leaves)
        self.deserved[name] = self.rng.randint(0, self.gpus // 2)
        self.c.queue(name, limits={"deserved": {entities.GPU: self.deserved[name]}})

    def finish(self) -> None:
        """A gang ends, whether it ran or not."""
        names = sorted(self.about)
        super().finish()
        for name in set(names) - set(self.about):
            del self.least[name]

    # -- what is owed ------------------------------------------------------------------------
    def owed(self) -> list[str]:
        """Queues that could have an extra more, and one above what it deserves that has one to spare.

        Counted from the pods alone, with nothing that the scheduler told.
        """
        groups = {key.name: group for key, group in self.c.cache.groups.items.items()}
        held: Counter[str] = Counter()
        wanting: Counter[str] = Counter()
        growing: set[str] = set()
        giving: set[str] = set()
        for gang in sorted(self.about):
            queue, least = groups[gang].queue, self.least[gang]
            pods = self._of(gang)
            running = sum(bool(pod.node) for pod in pods)
            held[queue] += running
            if running >= least and len(pods) > running:
                if groups[gang].terms.preemptible:
                    growing.add(queue)
            elif running < least <= self.deserved[queue]:
                wanting[queue] += least
            spare = groups[gang].terms.preemptible and groups[gang].terms.disruption == "Pod"
            if running > least and spare:
                giving.add(queue)
        over = {queue for queue in giving if held[queue] > self.deserved[queue]}
        return [
            queue
            for queue in sorted(growing)
            if held[queue] + wanting[queue] < self.deserved[queue] and over - {queue}
        ]


def rest(crowd: GrowingCrowd) -> Counter[Pair]:
    """Sessions until nothing happens; who was evicted for whom meanwhile."""
    seen: Counter[Pair] = Counter()
    for _ in range(QUIET):
        plan, pairs = crowd.step()
        seen.update(set(pairs))
        if crowd.quiet(plan):
            return seen
    return pytest.fail(f"not at rest after {QUIET} sessions: {seen}")


def live(seed: int) -> int:
    """A history of changes and rests; how many pods were evicted."""
    crowd = GrowingCrowd(random.Random(f"growing-{seed}"))
    crowd.start()
    for _ in range(6):
        seen = rest(crowd)
        for one, other in seen:
            assert (other, one) not in seen, f"seed {seed}: {one} and {other} take turns: {seen}"
        assert crowd.owed() == [], f"seed {seed}: at rest, and owed an extra"
        for _ in range(3):
            crowd.change()
    return crowd.evicted


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_growing_crowds_come_to_rest_and_nobody_is_owed_an_extra(first):
    """No gang is below its minimum in any history."""
    evicted = [live(seed) for seed in one_of(5, range(first, first + 10))]
    # A generator in which nobody takes anything would prove nothing.
    assert sum(evicted) >= 2 * len(evicted), evicted
