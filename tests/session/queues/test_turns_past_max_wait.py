"""A gang past its queue's maxWait gets its turn before queues below their share, and keeps it."""

from __future__ import annotations

import attrs
import pytest

from gpusched.config.model import DEFAULT, PluginChoice
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.running import runs

MINUTE_NS = 60 * 10**9


def crowd(c: Given, *, waited: float, lasts: int = 0) -> Given:
    """Four GPUs; ``patient`` of gold wants three, above its half, and bronze has jobs of one."""
    c.node("n0", gpus=4)
    c.queue("gold", max_wait_ns=MINUTE_NS).queue("bronze")
    c.group(
        "patient",
        queue="gold",
        min_member=3,
        created=c.now - waited,
        expected_duration_ns=lasts * 10**9,
    )
    for n in range(3):
        c.pod(f"patient-{n}", group="patient", gpus=1, rank=n, created=c.now - waited)
    for n in range(4):
        c.gang(f"small-{n}", pods=1, gpus=1, queue="bronze", created=c.now - 100)
    return c


@pytest.mark.parametrize(
    ("waited", "started"), [(59, ["small-0", "small-1"]), (61, ["patient", "small-0"])]
)
def test_freed_room_is_kept_for_it_before_queues_below_their_share(given, waited, started):
    """Not yet past maxWait its queue stands behind the one that stays within its share."""
    crowd(given, waited=waited).when.carried_out()
    assert given.then.started()[:2] == started


@pytest.mark.parametrize("later", [1, 59])
def test_it_is_not_taken_back_as_surplus_at_once(given, later):
    """Bronze is due two GPUs and holds one: it waits for as long as the patient gang did."""
    crowd(given, waited=61).when.carried_out()
    given.now += float(later)
    given.when.one_session()
    assert given.then.evicted() == []


def test_its_turn_ends(given):
    """After as long again surplus is taken back as ever."""
    crowd(given, waited=61).when.carried_out()
    given.now += 60.0
    given.when.one_session()
    assert set(given.then.evicted()) == {"patient-0", "patient-1", "patient-2"}


@pytest.mark.parametrize(("lasts", "evicted"), [(119, 0), (120, 0), (121, 3)])
def test_a_gang_that_ends_within_twice_max_wait_is_left_to_end(given, lasts, evicted):
    """What it says of its length counts within bounds; longer ones have the same turn as any."""
    crowd(given, waited=61, lasts=lasts).when.carried_out()
    given.now += 100.0
    given.when.one_session()
    assert len(given.then.evicted()) == evicted


@pytest.mark.parametrize(("deserved", "started"), [(2, []), (3, ["small"])])
def test_what_a_queue_deserves_is_never_withheld(given, deserved, started):
    """Of the two GPUs that are kept for the patient gang bronze gets what it says it deserves."""
    given.node("n0", gpus=4).queue("gold", max_wait_ns=MINUTE_NS)
    given.queue("bronze", limits={"deserved": {entities.GPU: deserved}})
    runs(given, "own", "n0 n0", queue="bronze")
    given.gang("patient", pods=3, gpus=1, queue="gold", created=given.now - 61)
    given.gang("small", pods=1, gpus=1, queue="bronze", created=given.now)
    given.when.carried_out()
    assert given.then.started() == started


def test_what_a_queue_deserves_is_taken_back_from_it(given):
    """Who deserves more comes later and takes it back from the turn of another."""
    given.node("n0", gpus=4).queue("gold", max_wait_ns=MINUTE_NS)
    given.queue("bronze", limits={"deserved": {entities.GPU: 2}})
    given.gang("patient", pods=3, gpus=1, queue="gold", created=given.now - 61).when.carried_out()
    assert given.then.started() == ["patient"]
    given.now += 5.0
    given.gang("late", pods=2, gpus=1, queue="bronze", created=given.now)
    given.when.one_session()
    assert set(given.then.evicted()) == {"patient-0", "patient-1", "patient-2"}


def test_an_argument_leaves_its_turn_to_fair_shares():
    """``keepsTurn: againstPriority`` protects it inside its queue alone."""
    first, *rest = DEFAULT.tiers
    sla = PluginChoice(name="sla", arguments={"keepsTurn": "againstPriority"})
    plugins = tuple(sla if each.name == "sla" else each for each in first.plugins)
    config = attrs.evolve(DEFAULT, tiers=(attrs.evolve(first, plugins=plugins), *rest))
    c = crowd(Given(config=config), waited=61)
    c.when.carried_out()
    assert "patient" not in c.then.started()


@pytest.mark.parametrize("above", [False, True])
def test_no_room_is_held_for_one_that_is_larger_than_its_queue_may_get(given, above):
    """It can never start: in its turn it keeps nobody from the nodes, however long it has waited."""
    cap = {"limits": {"capability": {entities.GPU: 5}}}
    for n in range(2):
        given.node(f"n{n}", gpus=4)
    given.queue("top", **(cap if above else {})).queue("bronze")
    given.queue("gold", parent="top", max_wait_ns=MINUTE_NS, **({} if above else cap))
    runs(given, "long", "n0", queue="bronze")
    given.gang("never", pods=6, gpus=1, queue="gold")
    given.now += 200.0
    given.when.carried_out()
    given.gang("small", pods=4, gpus=1, queue="bronze")
    given.now += 1.0
    given.when.carried_out()
    assert given.then.started() == ["small"]
    assert given.then.why("never") == (
        f"needs 6 nvidia.com/gpu; queue {'top' if above else 'gold'} never gets more than its capability of 5"
    )
