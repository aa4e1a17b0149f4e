"""After a move everything is as if the gang had been placed there at first; a try leaves no trace."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpusched.arrays.columns import Ints
from gpusched.base.errors import InvariantBroken
from gpusched.cache.gangs.gang import Gang
from gpusched.session.backfill.reservations import Reservations
from gpusched.session.rebalance.batch_admission import Reassignment
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement
from gpusched.session.status.binds import build_gang_binds
from gpusched.testing.given import Given

Rows = dict[str, list[int]]


def cluster(seed: int) -> Given:
    """Nodes of four GPUs in two queues, three gangs that may be placed, one that runs."""
    rng = random.Random(seed)
    c = Given()
    for name in ("one", "two"):
        c.queue(name, limits={"deserved": {"nvidia.com/gpu": 8}})
    c.nodes(6, gpus=4)
    for name in ("a", "b", "c"):
        c.gang(
            name,
            pods=rng.randint(1, 3),
            gpus=rng.choice((1, 2)),
            queue=rng.choice(("one", "two")),
        )
    for pods in range(1, 7):
        c.gang(f"long-{pods}", pods=pods, gpus=4, queue="one")
    c.gang("runs", pods=1, gpus=4, queue="one")
    c.group("runs", min_member=1, queue="one", expected_duration_ns=3_600 * 10**9)
    c.pod("runs-0", group="runs", gpus=4, node="node-5")
    return c


def session_of(c: Given) -> Session:
    """A session with reservations, in which nothing has happened."""
    snapshot = c.cache.take_snapshot(c.now)
    session = Session(
        snapshot,
        c.policy.plugins,
        c.policy.capabilities,
        guard=c.guard,
        session_cache=c.session_cache,
        placement=c.placement,
    )
    session.track_reservations(Reservations(session, per_pool=8))
    return session


def named(session: Session, name: str) -> Gang:
    """The gang of that name."""
    return next(gang for gang in session.gangs if gang.key.name == name)


def placed(session: Session, gang: Gang, rows: list[int]) -> Statement:
    """A statement with each member on its row."""
    statement = session.statement()
    pods = [(task, pod) for task in gang.pod_sets for pod in task.pods]
    for (task, pod), row in zip(pods, rows, strict=True):
        statement.assign(pod, row, session.class_info(task.pod_class).request)
    return statement


def drawn(c: Given, rng: random.Random, *, without: Rows | None = None) -> Rows:
    """Rows for the members of a, b and c that fit together; those of c as in another draw."""
    session = session_of(c)
    free = [4] * 5
    found: Rows = {}
    for name in ("c", "a", "b"):
        gang = named(session, name)
        gpus = gang.pod_sets[0].pod_class.gpus
        rows = (without or {}).get(name) if name == "c" else None
        if rows is None:
            rows = []
            for _ in range(gang.pending):
                row = rng.choice([row for row in range(5) if free[row] >= gpus])
                rows.append(row)
                free[row] -= gpus
        else:
            for row in rows:
                free[row] -= gpus
        found[name] = rows
    return found


def one_is_held(session: Session) -> None:
    """The gang that lacks one whole node is blocked, and holds the one that will be free."""
    reservations = session.reservations
    assert reservations is not None
    gpus = session.node_usage.nodes.columns["nvidia.com/gpu"]
    whole = int((session.node_usage.used[:, gpus] == 0).sum())
    reservations.note_blocked(named(session, f"long-{whole + 1}"), passed=False)
    assert len(reservations.reserved_gangs) == 1


def state(session: Session) -> dict[str, object]:
    """All that later decisions of the session read."""
    reservations = session.reservations
    assert reservations is not None
    profile = reservations.profile
    node_usage = session.node_usage
    query = _Everybody()
    return {
        "used": node_usage.used.tolist(),
        "slots": list(node_usage.free_slots),
        "staying": node_usage.staying.tolist(),
        "pod_counts": session.pod_counts.count_by_row(query).tolist(),
        "accounts": [session.queue_accounts.allocated(name) for name in ("root", "one", "two")],
        "staying accounts": [session.queue_accounts.staying(name) for name in ("root", "one", "two")],
        "fixed": [session.queue_accounts.fixed(name) for name in ("root", "one", "two")],
        "profile": profile.staying.tolist(),
        "releases": [(each.time, each.gang, sorted(each.rows.tolist())) for each in profile.releases],
        "proofs": [session.placements.proof(gang) for gang in session.gangs],
        "binds": [(bind.gang, bind.binds) for bind in build_gang_binds(session)],
        "boards": [
            session.class_info(task.pod_class).class_fit.fits.tolist()
            for gang in session.gangs
            for task in gang.pod_sets
        ],
    }  # fmt: skip


class _Everybody:
    """Counts every pod."""

    cautious = False
    needs = None

    def counts(self, _pod: object) -> bool:
        """Yes."""
        return True

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Everybody)


def slack(session: Session) -> list[list[list[int]]]:
    """What holders leave to others, as it is kept."""
    assert session.reservations is not None
    return [reserved.slack.tolist() for reserved in session.reservations.reserved_gangs]


def counted_slack(session: Session) -> list[list[list[int]]]:
    """The same counted from the profile."""
    reservations = session.reservations
    assert reservations is not None
    profile = reservations.profile
    table = profile.reservation_table(reservations.reservations)
    found: list[Ints] = [
        profile.free_at(reserved.reservation.start, table)[reserved.reservation.rows]
        for reserved in reservations.reserved_gangs
    ]
    return [np.asarray(each).tolist() for each in found]


@pytest.mark.parametrize("seed", range(15))
def test_after_a_move_all_is_as_if_they_had_been_placed_there_at_first(seed: int) -> None:
    """Use, slots, neighbours, queues, room over time, binds: nothing tells the difference."""
    c = cluster(seed)
    rng = random.Random(seed)
    first = drawn(c, rng)
    then = drawn(c, rng, without=first)
    moved = session_of(c)
    assert moved.reservations is not None
    assert moved.reservations.profile is not None
    for name in ("c", "a", "b"):
        gang = named(moved, name)
        moved.placements.commit(gang, placed(moved, gang, first[name]))
    moves = Reassignment(moved, [named(moved, "a"), named(moved, "b")])
    for name in ("a", "b"):
        gang = named(moved, name)
        assert moves.assign_places(gang, placed(moved, gang, then[name]))
    moves.commit()
    straight = session_of(c)
    for name in ("c", "a", "b"):
        gang = named(straight, name)
        straight.placements.commit(gang, placed(straight, gang, then[name]))
    assert state(moved) == state(straight)


@pytest.mark.parametrize("seed", range(15))
def test_a_try_that_is_given_up_leaves_no_trace(seed: int) -> None:
    """One of two has settled when the other finds nothing: both have the slots they had."""
    c = cluster(seed)
    rng = random.Random(seed)
    first = drawn(c, rng)
    then = drawn(c, rng, without=first)
    session = session_of(c)
    for name in ("a", "b", "c"):
        gang = named(session, name)
        statement = placed(session, gang, first[name])
        statement.proof = "optimal" if name == "a" else ""
        session.placements.commit(gang, statement)
    one_is_held(session)
    before, held = state(session), slack(session)
    moves = Reassignment(session, [named(session, "a"), named(session, "b")])
    assert not session.placements.assigned(named(session, "a"))
    assert not any(session.placements.proof(gang) for gang in session.gangs)
    gang = named(session, "a")
    assert moves.assign_places(gang, placed(session, gang, then["a"]))
    moves.discard()
    assert state(session) == before
    assert slack(session) == held


@pytest.mark.parametrize("seed", range(15))
def test_what_holders_leave_to_others_follows_a_move(seed: int) -> None:
    """The slack that is kept is that which is counted anew."""
    c = cluster(seed)
    rng = random.Random(seed)
    first = drawn(c, rng)
    then = drawn(c, rng, without=first)
    session = session_of(c)
    for name in ("a", "b", "c"):
        gang = named(session, name)
        session.placements.commit(gang, placed(session, gang, first[name]))
    one_is_held(session)
    assert slack(session) == counted_slack(session)
    moves = Reassignment(session, [named(session, "a"), named(session, "b")])
    for name in ("a", "b"):
        gang = named(session, name)
        assert moves.assign_places(gang, placed(session, gang, then[name]))
    moves.commit()
    assert slack(session) == counted_slack(session)


def test_other_members_do_not_settle() -> None:
    """Queues would be charged for others than are placed."""
    c = cluster(1)
    session = session_of(c)
    gang, other = named(session, "a"), named(session, "b")
    session.placements.commit(gang, placed(session, gang, [0] * gang.pending))
    moves = Reassignment(session, [gang])
    statement = placed(session, other, [1] * other.pending)
    assert not moves.assign_places(gang, statement)
    statement.discard()
    with pytest.raises(InvariantBroken):
        moves.commit()
    moves.discard()
    assert len(session.placements.assigned(gang)) == gang.pending
