"""What authors import: every name is there, and names of version 0.1.0 are still found."""

from __future__ import annotations

import pytest

from gpusched import plugin
from gpusched.config.model import DEFAULT
from gpusched.plugin import ActionNeeds, Capability
from gpusched.pluginhost.registry import load_policy
from gpusched.session.state.policy import action_capabilities, action_needs
from gpusched.testing.authors import cluster_under


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Task", "PodSet"),
        ("Claim", "PersistentVolumeClaim"),
        ("Volume", "PersistentVolume"),
        ("Storage", "VolumeCatalog"),
        ("Usage", "QueueUsage"),
        ("turns", "in_queue_order"),
    ],
)
def test_a_name_of_before_is_found_with_a_warning(old: str, new: str) -> None:
    """The warning says what to write instead."""
    with pytest.warns(DeprecationWarning, match=f"{old} is called {new} now"):
        found = getattr(plugin, old)
    assert found is getattr(plugin, new)


def test_a_name_that_never_was_is_not_found() -> None:
    """A typing mistake is an error, not a warning."""
    with pytest.raises(AttributeError, match="no attribute 'Tusk'"):
        _ = plugin.Tusk  # type: ignore[attr-defined]


def test_every_public_name_exists_once() -> None:
    """Nothing is listed that is not there."""
    assert len(plugin.__all__) == len(set(plugin.__all__))
    assert [name for name in plugin.__all__ if not hasattr(plugin, name)] == []


def test_the_search_that_ignores_reservations_is_not_public() -> None:
    """Nor is anything that would make, replace or drop one."""
    assert "place_ignoring_reservations" not in plugin.__all__
    assert "Reservations" not in plugin.__all__


def test_shipped_actions_state_what_they_do_and_what_they_expect() -> None:
    """Each does something of its own, and none expects what it does itself."""
    seen: list[Capability] = []
    for action in load_policy(DEFAULT).actions:
        provides, needs = action_capabilities(action), action_needs(action)
        assert provides
        assert isinstance(needs, ActionNeeds)
        assert not set(provides) & set(needs.after)
        assert set(needs.after) <= set(seen), f"the default order does not suit {action.name}"
        seen += provides
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("provides = ('placement',)", "provides is ('placement',), not a tuple of Capability"),
        ("provides = 3", "provides is 3, not a tuple of Capability"),
        ("needs = ('enqueue',)", "needs is ('enqueue',), not ActionNeeds"),
    ],
)
def test_an_action_that_states_nonsense_is_refused(packages, line: str, why: str) -> None:
    """With file, line and what is wrong, before any session."""
    import attrs  # noqa: PLC0415

    from gpusched.base.errors import ConfigError  # noqa: PLC0415

    packages.install(
        "acme_odd", actions="odd = acme_odd.action:Odd",
        action=f"class Odd:\n    name = 'odd'\n    {line}\n    def run(self, session): pass\n",
    )  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        load_policy(attrs.evolve(DEFAULT, actions=("enqueue", "odd"), action_lines=()))
    assert why in str(caught.value)


def test_the_room_left_on_a_gpu_is_found_under_its_old_name() -> None:
    """A score of version 0.1.0 goes on, with a warning."""
    answers: list[bool] = []

    class Score:
        name = "score"
        api = 1

        def open(self, hooks: plugin.Hooks, view: plugin.View) -> None:
            def score(pod: plugin.PodClass, rows: plugin.NodeRows) -> None:
                with pytest.warns(DeprecationWarning, match="gpu_room_left"):
                    left = rows.left_for(pod)
                answers.append(left.tolist() == rows.gpu_room_left(pod).tolist())

            hooks.node_score(score)

    c = cluster_under(Score()).nodes(2, gpus=2).queue("a")
    c.gang("g", pods=1, gpus=1, queue="a")
    c.when.one_session()
    assert c.then.faults() == ()
    assert answers
    assert all(answers)
