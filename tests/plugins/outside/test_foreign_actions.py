"""An outside author's action that fails costs its own moves, never the session."""

from __future__ import annotations

import sys

import attrs
import pytest

from gpusched.base.limits import PLUGIN_FAULTS_MAX
from gpusched.config.model import DEFAULT
from gpusched.plugin import place_minimum
from gpusched.pluginhost.registry import load_policy
from gpusched.session.state.policy import Policy
from gpusched.testing.given import Given


def under(run, *, before="allocate"):
    """Two nodes and two gangs, and an action of somebody's before a shipped one."""

    @attrs.frozen
    class Odd:
        name = "odd"

        def run(self, session):
            run(session)

    shipped = load_policy(DEFAULT)
    names = [action.name for action in shipped.actions]
    where = names.index(before)
    actions = (*shipped.actions[:where], Odd(), *shipped.actions[where:])
    c = Given(policy=Policy(actions, shipped.tiers)).nodes(2, gpus=8).queue("a")
    return c.gang("g", pods=1, gpus=8, queue="a").gang("h", pods=1, gpus=8, queue="a")


def place_and_fail(session):
    """Leaves an open statement and one that is kept."""
    first, second = session.gangs
    kept = session.statement()
    assert place_minimum(session, first, kept) is None
    session.placements.commit(first, kept)
    place_minimum(session, second, session.statement())
    raise LookupError("half-way")


def misuse(session):
    statement = session.statement()
    statement.commit()
    statement.commit()


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (place_and_fail, "LookupError: half-way"),
        (misuse, "a statement that was kept or discarded was used again"),
        (lambda _session: sys.exit(3), "SystemExit: 3"),
        (lambda session: session.no_such_thing(), "AttributeError"),
    ],
)
def test_the_others_decide_as_if_it_were_not_there(run, why):
    """All that the failed action did is dropped; the fault is put down to it."""
    c = under(run)
    c.when.bound()
    assert c.then.started() == ["g", "h"]
    (fault,) = c.decision.faults
    assert fault.startswith("plugin odd failed in hook run: ")
    assert why in fault


def test_an_action_that_keeps_failing_is_set_aside_and_tried_once_a_session():
    """It is not even begun after so many faults; one good run brings it back."""
    begun = []

    def run(_session):
        begun.append(1)
        if len(begun) <= PLUGIN_FAULTS_MAX + 1:
            raise LookupError("not yet")

    c = under(run)
    for _ in range(PLUGIN_FAULTS_MAX):
        c.when.one_session()
    assert c.guard.is_quarantined("odd", "run")
    c.when.one_session()
    assert len(begun) == PLUGIN_FAULTS_MAX + 1
    assert c.guard.is_quarantined("odd", "run")
    c.when.one_session()
    assert not c.guard.is_quarantined("odd", "run")
    assert c.then.started() == ["g", "h"]


@pytest.mark.contains
def test_a_bug_of_our_own_actions_is_told_as_ours(monkeypatch):
    """It is no fault of any policy, and the daemon does not go on as if nothing were."""
    from gpusched.actions.allocate import Allocate  # noqa: PLC0415

    def bug(self, session):
        raise LookupError("ours")

    monkeypatch.setattr(Allocate, "run", bug)
    c = under(lambda _session: None)
    c.when.one_session()
    assert c.then.started() == []
    assert c.then.faults() == ()
    assert "LookupError: ours" in c.decision.degraded.message
