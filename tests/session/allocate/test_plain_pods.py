"""A lone pod that wishes for nothing finds the place that it finds where all that it could wish is asked."""

from __future__ import annotations

import random

import pytest

from gpusched.api.pod.pod import GangAnnotations
from gpusched.session.allocate import gang_placement
from gpusched.session.start.lone_pods import LonePods
from gpusched.testing.given import Given


def decided(seed: int) -> tuple[dict[str, str], str]:
    """Nodes of lone pods, and all that is told."""
    rng, c = random.Random(seed), Given()
    for number in range(6):
        labels = {"gpusched.io/rack": f"rack-{number // 2}", "kind": rng.choice(("a", "b"))}
        c.node(f"node-{number}", gpus=rng.choice((0, 2, 4, 8)), labels=labels)
    c.queue("q").queue("small", limits={"capability": {"nvidia.com/gpu": 3}})
    for number in range(24):
        c.pod(
            f"pod-{number:02d}",
            gpus=rng.choice((0, 1, 1, 2, 4)),
            cpu=1000 + 10 * number,
            queue=rng.choice(("q", "q", "small")),
            priority=rng.choice((0, 5)),
            node_selector=rng.choice(({}, {}, {"kind": "a"})),
            hints=rng.choice(
                (
                    GangAnnotations(),
                    GangAnnotations(),
                    GangAnnotations(topology_preferred="rack"),
                    GangAnnotations(topology_required="none"),
                )
            ),
        )
    plan = c.when.one_session()
    return c.then.nodes(), repr(plan)


@pytest.mark.parametrize("seed", range(12))
def test_places_and_reasons_are_the_same(seed, monkeypatch):
    asked = []
    is_plain = gang_placement.is_plain_pod

    def counted(session, gang):
        asked.append(is_plain(session, gang))
        return asked[-1]

    monkeypatch.setattr(LonePods, "start", lambda *_about: False)
    monkeypatch.setattr(gang_placement, "is_plain_pod", counted)
    quick = decided(seed)
    assert sum(asked) > 5
    assert not all(asked)
    monkeypatch.setattr(gang_placement, "is_plain_pod", lambda *_about: False)
    assert quick == decided(seed)
