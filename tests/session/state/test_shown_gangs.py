"""Gangs to show stay sorted, and are the same object where none is another."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from gpusched.api.meta.identity import GangKey
from gpusched.cache.gangs.counting.shown_gangs import ShownGangs


@pytest.mark.parametrize("seed", range(8))
def test_shown_gangs_are_those_that_wait_or_pass(seed):
    """Given random changes, few and many at a time, then what is shown is as if it were sorted anew."""
    rng, shown = random.Random(seed), ShownGangs()
    families, waiting, before = {}, set(), ()
    keys = [GangKey("PodGroup", "ns", f"g{number:03}") for number in range(120)]
    for _ in range(60):
        touched = set(rng.sample(keys, rng.choice([0, 1, 2, 5, 60])))
        for key in sorted(touched):
            families.pop(key, None)
            waiting.discard(key)
            if rng.random() < 0.8:
                parts = [key, key._replace(name=f"{key.name}/{rng.randrange(3)}")]
                families[key] = tuple(_gang(each) for each in parts[: rng.choice([1, 1, 2])])
                if rng.random() < 0.7:
                    waiting.add(key)
        passing = {*touched, *rng.sample(keys, rng.choice([0, 0, 3]))}
        found = shown.show(passing, touched, waiting, families)
        expected = [gang for key in passing | waiting for gang in families.get(key, ())]
        assert list(found) == sorted(expected, key=lambda gang: gang.key)
        assert (found is before) == (list(found) == list(before)) or touched
        before = found


def _gang(key):
    return SimpleNamespace(key=key)
