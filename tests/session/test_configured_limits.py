"""Limits of the configuration that sessions keep to: each changes what one session decides."""

from __future__ import annotations

from typing import Any

from gpusched.config.model import LimitsConfig
from gpusched.testing import entities
from tests.session.allocate.test_gang_life import started


def under(c: Any, **limits: Any) -> Any:
    """The cluster under limits of which these are not as by default."""
    c.cache.use_limits(LimitsConfig(**limits))
    return c


def job(c: Any, name: str, **more: Any) -> Any:
    """A Job of one pod with 8 GPUs that was started."""
    fields = {"suspended": False, "queue": "default", "gpus": 8, **more}
    return c.job(name, parallelism=1, completions=1, indexed=True, **fields)


def test_a_started_job_goes_back_after_the_admitted_timeout(given):
    """Given 20 s, when a Job got no place for 21 s, then it is suspended again; by default not yet."""
    c = given.nodes(0)
    job(c, "unlucky", started={"admitted": c.now - 21})
    assert c.when.one_session().job_changes == ()
    under(c, admitted_timeout_s=20.0)
    (switch,) = c.when.one_session().job_changes
    assert switch.suspend
    assert "within 20 s of its start" in switch.message


def test_room_is_held_for_pods_until_the_arrival_timeout(given):
    """Given 5 s, when no pod has come for 6 s, then another gang gets the room."""
    c = given.nodes(1, gpus=8)
    job(c, "started", pods=0, started={"admitted": c.now - 6})
    c.gang("quick", pods=1, gpus=8, created=entities.BORN + 100)
    c.when.one_session()
    assert c.then.started() == []
    under(c, pod_arrival_timeout_s=5.0).when.one_session()
    assert c.then.started() == ["quick"]


def test_room_is_held_for_lost_members_until_the_repair_timeout(given):
    """Given 3 s, when a gang has lacked a member for 5 s, then another gang gets its room."""
    c = started(given.nodes(4, gpus=8), "a", 3, need=4, since=given.now - 5)
    c.gang("one", pods=1, gpus=8)
    c.when.one_session()
    assert c.then.started() == []
    under(c, repair_timeout_s=3.0).when.one_session()
    assert c.then.started() == ["one"]
