"""Turns past ``maxWait`` beside what is guaranteed to other queues."""

from __future__ import annotations

from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.session.running import runs


def full_of_guarantees(never: int) -> Given:
    """Eight GPUs of which six are guaranteed to queue g, one is in use, and a gang of queue a waits past ``maxWait``."""
    c = Given()
    for n in range(2):
        c.node(f"n{n}", gpus=4)
    c.queue("a", max_wait_ns=60 * 10**9)
    c.queue("b")
    c.queue("g", limits={"guarantee": {entities.GPU: 6}})
    runs(c, "long", "n0", queue="b", gpus=1)
    c.gang("never", pods=never, gpus=1, queue="a")
    c.now += 200
    c.when.carried_out()
    return c


def test_no_room_is_held_for_a_gang_that_guarantees_never_let_start():
    c = full_of_guarantees(never=4)  # 8 less 6 that are guaranteed to g are 2
    assert c.then.why("never") == (
        "needs 4 nvidia.com/gpu; of the 8 of queue root, 6 are guaranteed to others, the most to queue g"
    )
    c.gang("due", pods=4, gpus=1, queue="g")
    c.now += 30
    c.when.carried_out()
    assert c.then.started() == ["due"]


def test_a_gang_that_guarantees_let_start_once_others_have_ended_waits_for_quota():
    c = full_of_guarantees(never=2)
    assert "1 are held and 6 are kept free" in c.then.why("never")
