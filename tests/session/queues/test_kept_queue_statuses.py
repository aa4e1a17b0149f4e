"""The status of a queue is the same object from session to session while it says the same."""

from __future__ import annotations

from gpusched.config.model import DEFAULT
from gpusched.pluginhost.registry import load_policy
from gpusched.session.state.session_cache import SessionCache
from gpusched.testing.given import Given


def test_statuses_are_kept_while_they_say_the_same():
    """When a gang comes into one queue, then the other's status stays, and all are as a session without memory has them."""
    c = Given(policy=load_policy(DEFAULT)).nodes(2, gpus=8).queue("a").queue("b")
    c.gang("runs", pods=1, gpus=2, queue="b")
    plans = [c.when.one_session()]
    c.pod("stays", gpus=2, node="node-1", queue="b")
    plans.append(c.when.one_session())
    c.gang("late", pods=9, gpus=8, queue="a")
    plans.append(c.when.one_session())
    c.queue("b", limits={"deserved": {"nvidia.com/gpu": 1}})
    plans.append(c.when.one_session())
    c.session_cache = SessionCache()
    anew = c.when.one_session()
    assert anew.queues == plans[-1].queues
    rows = [{status.name: status for status in plan.queues} for plan in plans]
    assert rows[1]["b"] != rows[0]["b"]
    assert rows[2]["b"] is rows[1]["b"]
    assert rows[2]["a"].requested != rows[1]["a"].requested
    assert rows[3]["a"] is rows[2]["a"]
    assert rows[3]["b"] != rows[2]["b"]
