"""No action of an outside author breaks a reservation, whatever it takes from ``gpusched.plugin``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from gpusched.plugin import Session, grow, place_minimum
from gpusched.testing import entities
from gpusched.testing.authors import cluster_under
from gpusched.testing.given import Given

NOW, S = entities.NOW, 10**9
ACME = Path(__file__).parents[3] / "docs/examples/acme-policies/src/acme_policies"


OLD = Path(__file__).parents[2] / "shipped/old_files/0.1.0/actions"


def published_action(folder: Path = ACME) -> Any:
    """The action that docs/plugins.md prints, as an author has it after copying."""
    spec = importlib.util.spec_from_file_location("acme_smallest", folder / "smallest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Smallest()


@attrs.frozen
class Foreign:
    """An action of somebody's that does what a test says."""

    run: Callable[[Session], None]
    name = "foreign"


def reserved(actions: Sequence[Any], *, small_s: int = 0) -> Given:
    """R holds three of four nodes for 90 s more; H needs all four; S of one pod came last."""
    c = cluster_under(actions=actions).nodes(4, gpus=8)
    c.group("r", min_member=3, expected_duration_ns=100 * S, phase="Running")
    for number in range(3):
        c.pod(
            f"r-{number}", group="r", node=f"node-{number}", gpus=8, scheduled=NOW - 10,
            phase="Running",
        )  # fmt: skip
    c.group("h", min_member=4, created=NOW - 8)
    c.pods("h", 4, group="h", gpus=8, created=NOW - 8)
    c.group("s", min_member=1, created=NOW - 5, expected_duration_ns=small_s * S)
    return c.pods("s", 1, group="s", gpus=8, created=NOW - 5)


def start_all(session: Session) -> None:
    """Every gang that fits, in order of their names."""
    for gang in sorted(session.gangs, key=lambda gang: gang.key, reverse=True):
        if gang.missing_members:
            statement = session.statement()
            if place_minimum(session, gang, statement) is None:
                session.placements.commit(gang, statement)
            else:
                statement.discard()


def put_by_hand(session: Session) -> None:
    """The small gang's pod on the free node, without asking for a place."""
    gang = next(gang for gang in session.gangs if gang.key.name == "s")
    statement = session.statement()
    pod = gang.pod_sets[0].pods[0]
    statement.assign(pod, 3, session.class_info(pod.pod_class).request)
    session.placements.commit(gang, statement)


def test_the_published_action_leaves_a_blocked_gang_its_reservation() -> None:
    """S would run for an unknown time on a node that is held for H from a known time on."""
    c = reserved(("enqueue", published_action(), "allocate", "backfill"))
    c.when.one_session()
    assert c.then.started() == []
    assert c.then.reason("s") == "Reserved"
    assert c.then.status("h").estimated_start == NOW + 90
    assert c.then.faults() == ()


def test_the_published_action_starts_what_ends_before_the_reservation() -> None:
    """S ends before H's nodes are free."""
    c = reserved(("enqueue", published_action(), "allocate", "backfill"), small_s=60)
    c.when.one_session()
    assert c.then.started() == ["s"]
    assert c.then.status("h").estimated_start == NOW + 90


@pytest.mark.filterwarnings("ignore:.* is called:DeprecationWarning")
@pytest.mark.parametrize(("small_s", "started"), [(0, []), (60, ["s"])])
def test_the_action_of_0_1_0_runs_as_it_was_and_leaves_reservations(
    small_s: int, started: list[str]
) -> None:
    """Names that it uses are others by now; S starts only where it ends before the reservation."""
    c = reserved(("enqueue", published_action(OLD), "allocate", "backfill"), small_s=small_s)
    c.when.one_session()
    assert c.then.started() == started
    assert c.then.status("h").estimated_start == NOW + 90
    assert c.then.faults() == ()


def test_a_former_name_is_answered_with_a_warning_that_names_todays() -> None:
    """The sentence says what to write instead."""
    c = reserved(("enqueue", published_action(OLD), "allocate"))
    with pytest.warns(DeprecationWarning, match="is called") as told:
        c.when.one_session()
    assert "session.keep is called session.placements.commit now" in {
        str(each.message) for each in told
    }


@pytest.mark.parametrize(
    "actions",
    [
        (Foreign(start_all), "enqueue", "allocate", "backfill"),
        ("enqueue", Foreign(start_all), "backfill"),
        ("enqueue", "allocate", Foreign(start_all), "backfill"),
        ("enqueue", "allocate", "backfill", Foreign(start_all)),
    ],
    ids=["before enqueue", "instead of allocate", "behind allocate", "last"],
)
def test_wherever_an_action_stands_the_reservation_holds(actions: tuple[Any, ...]) -> None:
    """The reservations are those of the session, not of the action that would make them."""
    c = reserved(actions)
    c.when.one_session()
    assert c.then.started() == []
    assert c.then.faults() == ()


def test_without_backfill_nothing_is_reserved_from_anybody() -> None:
    """Who does not configure reservations has none to break."""
    c = reserved(("enqueue", published_action(), "allocate"))
    c.when.one_session()
    assert c.then.started() == ["s"]


def test_a_place_taken_by_hand_is_refused_when_it_breaks_a_reservation() -> None:
    """The action is blamed, and the session decided as if it were not there."""
    c = reserved(("enqueue", Foreign(put_by_hand), "allocate", "backfill"))
    c.when.one_session()
    assert c.then.started() == []
    (fault,) = c.then.faults()
    assert "plugin foreign failed in hook run" in fault
    assert "default/s would take room that is reserved for default/h" in fault


def test_members_above_the_minimum_leave_reservations_whole() -> None:
    """E runs beside R and would grow onto the node that H waits for."""

    def grow_all(session: Session) -> None:
        for gang in session.gangs:
            if gang.placed:
                grow(session, gang)

    c = reserved(("enqueue", Foreign(grow_all), "allocate", "backfill"))
    c.gone("s-0").node("node-9", gpus=8)
    c.group("e", min_member=1, created=NOW - 90, phase="Running")
    c.pod("e-0", group="e", node="node-9", gpus=8, scheduled=NOW - 90, phase="Running")
    c.pod("e-1", group="e", gpus=8, created=NOW - 90, rank=1)
    c.when.one_session()
    assert c.then.nodes() == {}
    assert c.then.faults() == ()
