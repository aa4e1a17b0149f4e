"""Gangs of several classes: what one pass misses, the search finds or proves impossible."""

from __future__ import annotations

import attrs
import pytest

from gpusched.base.errors import SolverFault
from gpusched.config.model import DEFAULT, PlacementConfig
from gpusched.placement.cpsat import solver
from gpusched.placement.model.problem import SearchJob, search_in_process
from gpusched.testing.given import Given


def awkward(**config: object) -> Given:
    """Two nodes with 5 and 6 GPUs; members of 4, 3, 2 and 2 fit in one way only."""
    placement = PlacementConfig(**config)  # type: ignore[arg-type]
    c = Given(config=attrs.evolve(DEFAULT, placement=placement))
    c.node("a", gpus=5).node("b", gpus=6).group("mixed", min_member=4)
    for name, gpus in (("four", 4), ("three", 3), ("two", 2), ("deux", 2)):
        c.pod(name, group="mixed", spec=None, gpus=gpus)
    return c


def test_search_finds_the_only_placement() -> None:
    """Largest first onto the fullest node fails here; the complete search does not."""
    c = awkward()
    plan = c.when.one_session()
    nodes = {bind.key.name: bind.node for bind in plan.binds[0].binds}
    assert {nodes["four"], nodes["three"]} == {"a", "b"}
    assert nodes["four"] == nodes["two"] == nodes["deux"] or nodes["four"] != nodes["three"]
    assert len(nodes) == 4


@pytest.mark.parametrize(("guarded", "binds"), [(False, 4), (True, 0)])
def test_only_a_daemon_gives_a_search_up_by_the_clock_on_the_wall(
    monkeypatch, guarded, binds
) -> None:
    """Given a process that gets no processor for longer than a search may take, then what is played decides as ever."""
    monkeypatch.setattr(solver, "_GUARD_LEAST_S", 0.0)
    monkeypatch.setattr(solver, "_WALL_GUARD", 0.0)
    monkeypatch.setattr(solver.SEARCH_STOPPER, "guards_wall_time", guarded)
    plan = awkward().when.one_session()
    assert sum(len(gang.binds) for gang in plan.binds) == binds


def test_greedy_alone_misses_it_and_says_so() -> None:
    """The solver can be switched off; then one pass is all there is."""
    c = awkward(solver="greedy")
    plan = c.when.one_session()
    assert plan.binds == ()
    assert c.then.reason("mixed") == "InsufficientResources"
    assert "placement.solver allows no more" in c.then.why("mixed")


def test_proof_of_infeasibility_is_told() -> None:
    """A gang that fits by sums but not by nodes waits with a proof, not with a guess."""
    c = Given().node("a", gpus=5).node("b", gpus=5).group("mixed", min_member=3)
    for name, gpus in (("big", 4), ("mid", 3), ("dle", 3)):
        c.pod(name, group="mixed", gpus=gpus)
    assert c.when.one_session().binds == ()
    assert "a complete search proves that no placement exists now" in c.then.why("mixed")


def test_a_wrong_answer_of_the_solver_is_never_used() -> None:
    """Every answer is counted again; one that does not hold costs the gang its turn, no more."""
    c = awkward()
    c.search = lambda _job: "four and four on one node"
    assert c.when.one_session().binds == ()
    assert c.decision is not None
    assert c.decision.searches[0].faults
    c.search = search_in_process
    assert len(c.when.one_session().binds) == 1


def test_a_solver_that_crashes_costs_one_decision() -> None:
    """The fault is told, others start, and the next session asks again."""

    def crashes(_job: SearchJob) -> object:
        raise SolverFault("the solver's process ended")

    c = awkward().gang("other", pods=1, gpus=1)
    c.search = crashes
    plan = c.when.one_session()
    assert [bind.gang.name for bind in plan.binds] == ["other"]
    assert c.decision is not None
    assert any("process ended" in fault for each in c.decision.searches for fault in each.faults)
