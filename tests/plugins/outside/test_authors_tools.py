"""What authors of policies test with."""

from __future__ import annotations

import itertools

import attrs
import pytest

from gpusched.base.errors import ConfigError
from gpusched.testing.authors import cluster_under, repeats


@attrs.frozen
class Moody:
    """Prefers another node each time it is asked."""

    name = "moody"
    api = 1
    moods = itertools.count()

    def open(self, hooks, view):
        """Keeps something between sessions, which no policy may."""
        mood = next(self.moods) % 2

        def score(_pod, rows):
            return [1_000_000 * (int(node.name[-1]) == mood) for node in rows.nodes()]

        hooks.node_score(score)


def test_a_policy_with_a_memory_is_found():
    """Two sessions on one snapshot must decide the same."""
    honest = cluster_under().nodes(2, gpus=8).queue("a").gang("g", pods=1, gpus=1, queue="a")
    honest.when.bound()
    assert repeats(honest)
    moody = cluster_under(Moody()).nodes(2, gpus=8).queue("a").gang("g", pods=1, gpus=1, queue="a")
    moody.when.bound()
    assert not repeats(moody)


def test_actions_are_given_by_name_or_as_they_are():
    """In the order in which they are given, and an unknown name is told."""

    @attrs.frozen
    class Mine:
        name = "mine"

        def run(self, session):
            """Nothing."""

    c = cluster_under(actions=["enqueue", Mine(), "allocate"])
    assert [action.name for action in c.policy.actions] == ["enqueue", "mine", "allocate"]
    with pytest.raises(ConfigError, match='unknown action "enqeue"'):
        cluster_under(actions=["enqeue"])


def test_plugins_of_the_author_come_before_the_shipped_ones():
    """A tier of their own, and nothing is left out."""
    shipped = cluster_under().policy.plugins
    assert cluster_under(Moody()).policy.plugins == (Moody(), *shipped)
