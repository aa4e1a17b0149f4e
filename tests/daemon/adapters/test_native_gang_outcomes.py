"""What users of native gangs want, where kube-scheduler reaches it and where it does not."""

from __future__ import annotations

import pytest

from gpusched.devcluster.registry.gangs.features import all_gates
from tests.daemon.adapters.native_gang_player import Player, load_scenarios

RECORDED = load_scenarios("native_gang_outcomes.yaml")
RELEASES = {"v1alpha2": "1.36", "v1beta1": "1.37"}
"""Of Kubernetes, by the version that is written here."""
MORE = load_scenarios("native_gang_wants.yaml")
WORDS = ["fits", "mincount-lowered", "preempt-mode-podgroup", "single-pod-preempts-a-gang"]
"""Scenarios that are played in the form of 1.37 as well."""


def reach(play, scenario_of, version="v1alpha2"):
    """Play a scenario; at each look what is wanted must hold."""

    async def scenario(w):
        await w.start(nodes=0, gangs=all_gates(RELEASES[version]))
        player = Player(w, version)
        await player.prepare(scenario_of)
        w.daemon()
        await w.until(lambda: w.daemons[0].leading)
        await player.play(scenario_of)

    play(scenario)


@pytest.mark.parametrize("name", RECORDED)
def test_what_a_user_wants_is_reached(play, name):
    """Each recorded scenario, in the words of Kubernetes 1.36."""
    reach(play, RECORDED[name])


@pytest.mark.parametrize("name", WORDS)
def test_it_is_reached_in_the_words_of_1_37_too(play, name):
    """Modes, conditions and what may be changed have other words there."""
    reach(play, RECORDED[name], "v1beta1")


@pytest.mark.parametrize("name", MORE)
def test_what_one_member_at_a_time_does_not_reach(play, name):
    """Each scenario of ours."""
    reach(play, MORE[name])
