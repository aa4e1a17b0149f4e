"""Lines of gangs that are kept from session to session are those that would be made anew."""

from __future__ import annotations

import random

import attrs
import pytest

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.accounts.gang_lines import GangLines, KeptLines
from gpusched.testing import entities
from gpusched.testing.given import Given

FACTS = (
    "optional", "always", "missing", "told_counts", "requested", "requested_without_errors",
    "without_reason", "repelling", "nominated", "level_names", "claiming_classes",
)  # fmt: skip


class Seen:
    """How a session sees gangs: those with a name that ends in 0 with a warning, which changes with an epoch.

    Args:
        plain: whether it sees none otherwise.
    """

    def __init__(self, *, plain: bool = False) -> None:
        self.plain = plain
        self.epoch = object()
        self.text = "first"
        self.overdue: set[str] = set()

    def lines(self, kept: KeptLines, shown: tuple[Gang, ...]) -> GangLines:
        """Of a session."""
        return kept.follow(
            shown,
            may_differ=lambda gang: not self.plain and gang.key.name.endswith("0"),
            rests_on=lambda: (self.epoch,),
            without_overdue=lambda gang: (
                attrs.evolve(gang) if gang.key.name in self.overdue else gang
            ),
            as_seen=self._as_seen,
        )

    def _as_seen(self, gang: Gang) -> Gang:
        late = ", overdue" if gang.key.name in self.overdue else ""
        return attrs.evolve(gang, warning=f"{self.text}{late}")


def told(lines: GangLines):
    """All that can be read of them."""
    return (
        [(gang.key, gang.uid, gang.warning) for gang in lines.gangs],
        {key: gang.warning for key, gang in lines.by_key.items()},
        {
            line.key: [
                [each.key for each in value] if name in {"optional", "always", "without_reason",
                                                         "repelling", "nominated"} else value
                for name in FACTS
                for value in [getattr(line, name)]
            ]
            for line in lines.sorted_lines
        },
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_lines_after_any_history_are_those_made_anew(seed):
    """Gangs come, go, change queue and are seen otherwise, some or all at once."""
    rng = random.Random(seed)
    c, kept, seen = (
        Given().nodes(1, gpus=8).queue("a").queue("b"),
        KeptLines(),
        Seen(plain=bool(seed % 2)),
    )
    names: list[str] = []
    pods: list[str] = []
    for step in range(30):
        for _ in range(rng.choice((0, 1, 1, 2, 20))):
            name = f"g{step}-{len(names)}"
            names.append(name)
            members = rng.randint(1, 3)
            pods += [f"{name}-{number}" for number in range(members)]
            c.gang(
                name, pods=members, gpus=rng.choice((0, 1)), cpu=rng.choice((0, 500, 2**61)),
                queue=rng.choice("abz"), topology=TopologyRequest(required=rng.choice(("", "", "rack"))),
            )  # fmt: skip
        for name in rng.sample(names, min(len(names), rng.choice((0, 1, 3)))):
            names.remove(name)
            for pod in [each for each in pods if each.rsplit("-", 1)[0] == name]:
                pods.remove(pod)
                c.gone(pod)
        if rng.random() < 0.2:
            seen.epoch, seen.text = object(), f"at {step}"
        seen.overdue = set(rng.sample(names, min(len(names), rng.choice((0, 2)))))
        shown = c.cache.take_snapshot(float(step)).gangs
        assert told(seen.lines(kept, shown)) == told(seen.lines(KeptLines(), shown)), step


def test_pods_that_were_late_are_expected_again_when_the_clock_is_set_back():
    """Given a gang whose pods had not come in time, when that time is still to come, then it is seen as made anew."""
    c, kept, seen = Given().nodes(1, gpus=8), KeptLines(), Seen()
    c.gang("g0", pods=1, gpus=1)
    shown = c.cache.take_snapshot(1.0).gangs
    for overdue in (set(), {"g0"}, set(), {"g0"}):
        seen.overdue = overdue
        assert told(seen.lines(kept, shown)) == told(seen.lines(KeptLines(), shown)), overdue


def test_a_line_of_which_nothing_changed_is_the_same_object():
    """What was counted of it is not counted again."""
    c, kept, seen = Given().nodes(1, gpus=8).queue("a").queue("b"), KeptLines(), Seen()
    for name in ("g1", "g20", "g3"):
        c.gang(name, pods=1, gpus=1, queue="a")
    c.gang("other", pods=1, gpus=1, queue="b")
    before = seen.lines(kept, c.cache.take_snapshot(1.0).gangs).by_queue
    c.gang("another", pods=1, gpus=1, queue="b")
    after = seen.lines(kept, c.cache.take_snapshot(2.0).gangs).by_queue
    assert after["a"][0] is before["a"][0]
    assert after["b"][0] is not before["b"][0]


def test_gangs_with_an_error_request_nothing_in_shares():
    """They are counted in what their queue requests, and not in what it is due."""
    c = Given().nodes(1, gpus=8).queue("a")
    c.gang("good", pods=1, gpus=1, queue="a")
    (good,) = c.cache.take_snapshot(1.0).gangs
    bad = attrs.evolve(good, key=good.key._replace(name="bad"), error=("InvalidSpec", "wrong"))
    lines = Seen().lines(KeptLines(), tuple(sorted((good, bad), key=lambda gang: gang.key)))
    (line,) = lines.sorted_lines
    assert line.requested.get(entities.GPU) == 2 * line.requested_without_errors.get(entities.GPU)
