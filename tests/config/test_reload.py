"""Reloading: swapped as a whole, or the old one stays with a reason."""

from __future__ import annotations

import attrs

from gpusched.base.errors import ConfigError
from gpusched.config.model import DEFAULT, Config, CycleConfig, LeaderElectionConfig
from gpusched.config.reload import (
    _SECTIONS,
    ConfigAdopted,
    ConfigKept,
    ConfigUnchanged,
    decide_reload,
)


def test_same_content_changes_nothing():
    """A file that was only moved or reformatted is no change."""
    assert decide_reload(DEFAULT, attrs.evolve(DEFAULT, source="other.yaml")) == ConfigUnchanged()


def test_a_good_change_is_adopted_with_what_changed():
    """A valid file takes effect as a whole."""
    new = attrs.evolve(DEFAULT, cycle=CycleConfig(debounce_s=0.1), actions=("allocate",))
    assert decide_reload(DEFAULT, new) == ConfigAdopted(new, ("actions", "cycle"))


def test_a_bad_file_leaves_the_old_one_in_force():
    """An error keeps the old configuration and every sentence."""
    decision = decide_reload(DEFAULT, ConfigError("f:1: one", "f:2: two"))
    assert decision == ConfigKept(("f:1: one", "f:2: two"))
    assert decision.message == ("f:1: one (and 1 more problem); the configuration in force stays")


def test_what_takes_a_restart_is_not_half_adopted():
    """A change of the lease together with another one changes nothing at all."""
    new = attrs.evolve(
        DEFAULT,
        source="f.yaml",
        leader_election=LeaderElectionConfig(lease_name="x"),
        scheduler_names=("x",),
        cycle=CycleConfig(debounce_s=0.1),
    )
    assert decide_reload(DEFAULT, new) == ConfigKept(
        ("f.yaml: schedulerNames, leaderElection changed, which takes a restart of the daemon",)
    )


def test_every_section_of_the_file_counts_as_a_change():
    """A key that a later version adds to the file is not overlooked by a reload."""
    said = {field.name for field in attrs.fields(Config) if field.eq}
    assert said == set(_SECTIONS)
