"""Every stage of a pod, every phase of a gang, and every event: what follows, and what cannot."""

from __future__ import annotations

import pytest

from gpusched.base.errors import InvariantBroken
from gpusched.commit.machine import advance_commit
from gpusched.commit.model import (
    BindCreated,
    BindNotDone,
    BindRefused,
    BindSent,
    BindUnknown,
    BindVoided,
    CommitAccepted,
    CommitPhase,
    DeadlinePassed,
    GangCompleted,
    GroupRead,
    GroupUnreadable,
    LeadershipLost,
    PodEvicted,
    PodGone,
    PodRead,
    PodSeen,
    PodStage,
    PodUnreadable,
    ReadBackSent,
    TermSuperseded,
)

LETTERS = dict(zip("PASUCFGE", PodStage, strict=True))
EVENTS = {
    "sent": lambda _: BindSent(0),
    "created": lambda _: BindCreated(0),
    "doubted": lambda _: BindUnknown(0, "409"),
    "notdone": lambda _: BindNotDone(0, "429"),
    "refused": lambda _: BindRefused(0, "404"),
    "denied": lambda _: BindRefused(0, "403", denied=True),
    "read": lambda _: ReadBackSent(0),
    "f-ours": lambda f: PodRead(0, f("ours")),
    "f-free": lambda f: PodRead(0, f("free")),
    "f-lost": lambda f: PodRead(0, f("lost")),
    "f-none": lambda _: PodRead(0, None),
    "f-brok": lambda f: PodRead(0, f("broken")),
    "unread": lambda _: PodUnreadable(0, "timeout"),
    "s-ours": lambda f: PodSeen(0, f("ours")),
    "s-free": lambda f: PodSeen(0, f("free")),
    "s-lost": lambda f: PodSeen(0, f("lost")),
    "s-dele": lambda f: PodSeen(0, f("deleting")),
    "s-brok": lambda f: PodSeen(0, f("broken")),
    "gone": lambda _: PodGone(0),
    "evicted": lambda _: PodEvicted(0),
    "voided": lambda _: BindVoided(0, "node n is gone"),
}
# One row a stage and call under way (0 none, 1 binding, 2 read-back) of a binding gang.
# The cell is the stage that follows; ``.`` the same stage, ``x`` cannot be.
TABLE = """
     sent created doubted notdone refused denied read f-ours f-free f-lost f-none f-brok unread s-ours s-free s-lost s-dele s-brok gone evicted voided
P0   x    x       x       x       x       x      x    x      x      x      x      x      x      x      x      x      x      x      x    x       x
A0   S    x       x       x       x       x      x    x      x      x      x      x      x      C      .      F      F      x      G    x       F
S1   x    C       U       A       F       F      x    x      x      x      x      x      x      C      .      F      .      x      G    x       x
U0   x    x       x       x       x       x      .    x      x      x      x      x      x      C      .      F      .      x      G    x       x
U2   x    x       x       x       x       x      x    C      A      F      G      x      .      C      .      F      .      x      G    x       x
C0   x    x       x       x       x       x      x    x      x      x      x      x      x      .      .      F      .      x      G    x       x
C1   x    .       .       .       .       .      x    x      x      x      x      x      x      .      .      F      .      x      G    x       x
C2   x    x       x       x       x       x      x    .      .      .      .      .      .      .      .      F      .      x      G    x       x
F0   x    x       x       x       x       x      x    x      x      x      x      x      x      x      .      .      .      x      .    .       x
F1   x    C       .       .       .       .      x    x      x      x      x      x      x      x      .      .      .      x      .    .       x
F2   x    x       x       x       x       x      x    .      .      .      .      .      .      x      .      .      .      x      .    .       x
G0   x    x       x       x       x       x      x    x      x      x      x      x      x      .      .      .      .      .      .    .       x
G1   x    .       .       .       .       .      x    x      x      x      x      x      x      .      .      .      .      .      .    .       x
G2   x    x       x       x       x       x      x    .      .      .      .      .      .      .      .      .      .      .      .    .       x
E0   x    x       x       x       x       x      x    x      x      x      x      x      x      .      .      .      .      .      .    x       x
"""  # fmt: skip


def _cells():
    head, *rows = TABLE.strip().splitlines()
    for row in rows:
        name, *cells = row.split()
        for event, cell in zip(head.split(), cells, strict=True):
            yield pytest.param(name, event, cell, id=f"{name}-{event}")


def test_the_table_names_every_stage_and_event():
    """Nothing is left out of the table."""
    head, *rows = TABLE.strip().splitlines()
    assert head.split() == list(EVENTS)
    assert {row[0] for row in rows} == set(LETTERS)


@pytest.mark.parametrize(("name", "event", "cell"), list(_cells()))
def test_stage_and_event(at, facts, name, event, cell):
    """The next stage is that of the table, and an impossible event breaks an invariant."""
    stage = LETTERS[name[0]]
    # A second pod keeps the gang from coming to rest; one member is enough for it.
    other = PodStage.PLANNED if stage is PodStage.PLANNED else PodStage.SENT
    phase = CommitPhase.VERIFIED if stage is PodStage.PLANNED else CommitPhase.BINDING
    calls = [int(name[1]), int(other == PodStage.SENT)]
    tries = bytes([1 if stage is PodStage.UNKNOWN else 0, 0])
    state = at([stage, other], calls, phase=phase, need=1, tries=tries)
    happened = EVENTS[event](lambda what: facts(what, state))
    if cell == "x":
        with pytest.raises(InvariantBroken, match="ns/g under plan"):
            advance_commit(state, happened)
        return
    after, _ = advance_commit(state, happened)
    assert after.stage_of_pod(0) is (stage if cell == "." else LETTERS[cell])
    assert after.stage_of_pod(1) is other
    assert after.counts == tuple(sum(s == each for s in after.stages) for each in PodStage)
    answers = {"created", "doubted", "notdone", "refused", "denied", "unread"}
    if event in answers or event.startswith("f-"):
        assert after.calls[0] == 0
    else:
        assert after.calls[0] == {"read": 2, "sent": 1}.get(event, int(name[1]))


PHASES = {
    "fresh": ([PodStage.PLANNED] * 2, CommitPhase.VERIFIED),
    "verified": ([PodStage.ASSUMED] * 2, CommitPhase.VERIFIED),
    "binding": ([PodStage.SENT, PodStage.ASSUMED], CommitPhase.BINDING),
    "repair": ([PodStage.CONFIRMED, PodStage.FORGOTTEN], CommitPhase.REPAIR),
    "undoing": ([PodStage.CONFIRMED, PodStage.FORGOTTEN], CommitPhase.UNDOING),
    "bound": ([PodStage.CONFIRMED] * 2, CommitPhase.BOUND),
    "released": ([PodStage.FORGOTTEN] * 2, CommitPhase.RELEASED),
}
GANG_EVENTS = {
    "accepted": lambda _: CommitAccepted(),
    "same": lambda g: GroupRead(g()),
    "changed": lambda g: GroupRead(g(generation=4)),
    "unread": lambda _: GroupUnreadable("503"),
    "fenced": lambda _: LeadershipLost(),
    "superseded": lambda _: TermSuperseded(),
    "deadline": lambda _: DeadlinePassed(),
    "completed": lambda _: GangCompleted(),
}
GANG_TABLE = """
          accepted  same      changed   unread    fenced    superseded deadline  completed
fresh     verified  x         x         x         x         x          x         .
verified  x         binding   released  .         released  released   released  .
binding   x         x         x         x         .         .          .         .
repair    x         x         x         x         .         released   undoing   bound
undoing   x         x         x         x         .         released   .         .
bound     x         x         x         x         .         .          .         .
released  x         .         .         .         .         .          .         .
"""


def _gang_cells():
    head, *rows = GANG_TABLE.strip().splitlines()
    for row in rows:
        name, *cells = row.split()
        for event, cell in zip(head.split(), cells, strict=True):
            yield pytest.param(name, event, cell, id=f"{name}-{event}")


@pytest.mark.parametrize(("name", "event", "cell"), list(_gang_cells()))
def test_phase_and_event(at, group_facts, name, event, cell):
    """The next phase is that of the table, and an impossible event breaks an invariant."""
    stages, phase = PHASES[name]
    state = at(stages, [int(s == PodStage.SENT) for s in stages], phase=phase)
    happened = GANG_EVENTS[event](group_facts)
    if cell == "x":
        with pytest.raises(InvariantBroken):
            advance_commit(state, happened)
        return
    after, _ = advance_commit(state, happened)
    assert after.phase is (phase if cell == "." else CommitPhase(cell))


def test_the_gang_table_names_every_phase_and_event():
    """Nothing is left out of the table."""
    head, *rows = GANG_TABLE.strip().splitlines()
    assert head.split() == list(GANG_EVENTS)
    assert [row.split()[0] for row in rows] == list(PHASES)
    assert {phase for _, phase in PHASES.values()} == set(CommitPhase)
