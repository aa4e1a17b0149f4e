"""Gangs and facts for the commit machine."""

from __future__ import annotations

import attrs
import msgspec
import pytest

from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.api.meta.resources import NOTHING
from gpusched.commit.model import CommitPhase, CommitState, PodStage
from gpusched.commit.observed_pod import ObservedPod, ObservedPodGroup
from gpusched.session.state.plan import GangBind, PodBind

FENCE = "me/1"


def make_gang(pods=2, *, need=None, placed=0, kind="PodGroup"):
    """A gang of pods ``p-0``, ``p-1`` and so on, each for its own node."""
    binds = tuple(
        PodBind(
            key=ObjectKey("ns", f"p-{i}"), uid=UID(f"u-{i}"), node=f"n-{i}",
            node_uid=UID(f"nu-{i}"), slots=0b11, rank=i, requests=NOTHING,
        )
        for i in range(pods)
    )  # fmt: skip
    return GangBind(
        gang=GangKey(kind, "ns", "g"), uid=UID("u-g"), generation=3, queue="q",
        min_member=pods if need is None else need, placed=placed, binds=binds,
    )  # fmt: skip


def make_state(stages, calls=None, *, phase=CommitPhase.BINDING, **more):
    """A gang whose pods stand so."""
    need = more.pop("need", None)
    placed = more.pop("placed", 0)
    kind = more.pop("kind", "PodGroup")
    base = CommitState.for_bind(make_gang(len(stages), need=need, placed=placed, kind=kind), FENCE)
    return msgspec.structs.replace(
        base, stages=bytes(stages), calls=bytes(calls or [0] * len(stages)), phase=phase,
        counts=tuple(sum(s == each for s in stages) for each in PodStage), **more,
    )  # fmt: skip


def make_facts(what, state, index=0):
    """What the API shows: ours, free, lost, deleting, gated, other, broken, a successor's, or None."""
    bind = state.gang.binds[index]
    free = ObservedPod(bind.uid, "", "", "", deleting=False, gated=False)
    ours = attrs.evolve(free, node=bind.node, plan=state.plan, fence=FENCE)
    return {
        "free": free,
        "ours": ours,
        "lost": attrs.evolve(free, node="n-x", plan="another", fence="other/1"),
        "elsewhere": attrs.evolve(free, node=bind.node, plan="another", fence="other/1"),
        "deleting": attrs.evolve(free, deleting=True),
        "gated": attrs.evolve(free, gated=True),
        "again": attrs.evolve(free, uid=UID("u-new")),
        "broken": attrs.evolve(ours, node="n-x"),
        "successor": attrs.evolve(ours, fence="other/2"),
        "forged": attrs.evolve(ours, node="n-x", fence="other/1"),
        "none": None,
    }[what]


@pytest.fixture
def gang():
    """See ``make_gang``."""
    return make_gang


@pytest.fixture
def at():
    """See ``make_state``."""
    return make_state


@pytest.fixture
def facts():
    """See ``make_facts``."""
    return make_facts


@pytest.fixture
def group_facts():
    """The PodGroup as it was decided on, or changed."""

    def make(**changed):
        fields = {"uid": UID("u-g"), "generation": 3, "deleting": False}
        return ObservedPodGroup(**{**fields, **changed})

    return make


@pytest.fixture(scope="session")
def make_gang_and_group():
    """``make_gang`` and the facts of its unchanged PodGroup."""
    return make_gang, ObservedPodGroup(UID("u-g"), 3, deleting=False)
