"""Fuzzed objects of every kind through whole sessions: nothing raises, nothing is contained."""

from __future__ import annotations

import pytest

from tests.behaviour.fuzz.worlds import FuzzCounts, FuzzedCluster
from tests.populations import one_of

SHARDS = 8
WORLDS_OF_A_SHARD = 10


@pytest.mark.parametrize("shard", one_of(2, range(SHARDS)))
def test_fuzzed_objects_through_whole_sessions(shard):
    """Seeds are fixed; ``python -m benchmarks.fuzz --seed N --worlds 1`` shows one again."""
    tally = FuzzCounts()
    for seed in range(shard * WORLDS_OF_A_SHARD, (shard + 1) * WORLDS_OF_A_SHARD):
        FuzzedCluster(seed, tally).run()
    assert not tally.findings, "\n".join(
        f"seed {each.seed}: {each.what}: {each.where}\n{each.story}" for each in tally.findings
    )
    assert tally.objects > 300
    assert tally.sessions == 4 * WORLDS_OF_A_SHARD
    assert tally.rejected
    assert tally.binds


def test_a_world_follows_from_its_seed():
    """The same objects, sessions and plans each time."""
    tallies = []
    for _ in range(2):
        tally = FuzzCounts()
        for seed in (3, 8):
            FuzzedCluster(seed, tally).run()
        tallies.append(tally)
    assert tallies[0] == tallies[1]


@pytest.mark.contains
def test_the_fuzzer_finds_what_is_planted(monkeypatch):
    """A defect that one gang in many meets is a finding, although it is contained."""
    from gpusched.session.start.gang_start import GangStarts  # noqa: PLC0415

    original = GangStarts.start

    def start(starts, gang):
        if len(gang.pod_sets) > 1:
            raise ZeroDivisionError
        return original(starts, gang)

    monkeypatch.setattr(GangStarts, "start", start)
    tally = FuzzCounts()
    for seed in range(8):
        FuzzedCluster(seed, tally).run()
    assert {each.what for each in tally.findings} == {"contained: gang in allocate"}
