"""Memory is bounded by what is alive: of gangs that came and went nothing is kept."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import pytest

from gpusched.session.state.equivalence import GangCache

ROUND = 8
"""Gangs made and deleted between two counts."""
GROUPS = "podgroups.scheduling.gpusched.io"
BOUNDED = (GangCache,)
"""Sweep when they are twice as large as what waits, and hold a few dozen gangs before."""


def held(root):
    """How many entries each container holds that hangs by an object of ours, by its path."""
    gc.collect()  # what only cycles of tests before hold is not held by it
    found: dict[str, int] = {}
    seen: set[int] = set()
    todo: list[tuple[str, object]] = [("app", root)]
    while todo:
        path, each = todo.pop()
        if id(each) in seen or isinstance(each, BOUNDED):
            continue
        seen.add(id(each))
        if isinstance(each, Mapping | AbstractSet | deque | list):
            found[path] = found.get(path, 0) + len(each)
            inner = each.values() if isinstance(each, Mapping) else each
            todo += [(f"{path}[]", one) for one in inner if ours(one)]
            continue
        names = [*getattr(each, "__dict__", ())]
        names += [name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())]
        for name in names:
            value = getattr(each, name, None)
            if ours(value) or isinstance(value, Mapping | AbstractSet | deque | list):
                todo.append((f"{path}.{name}", value))
    return found


def ours(value):
    """Whether it is an object of this program, of which a test should know."""
    module = type(value).__module__
    return module.startswith("gpusched.") and not module.startswith("gpusched.lab.virtual_time.")


async def come_and_go(w, start):
    """Gangs that run, gangs that never can, empty ones, lone pods and Jobs: all are deleted."""
    for number in range(start, start + ROUND):
        w.gang(f"runs-{number}", 2, gpus=1)
        w.gang(f"waits-{number}", 2, gpus=64)
        w.group(f"empty-{number}", minMember=3)
        w.pod(f"lone-{number}", gpus=1, annotations={"gpusched.io/run-for": "10h"})
        w.pod(f"lost-{number}", gpus=1, labels={"gpusched.io/pod-group": f"none-{number}"})
        await w.clock.sleep(3)
    await w.clock.sleep(10)
    for number in range(start, start + ROUND):
        for name in (f"runs-{number}", f"waits-{number}"):
            w.client.delete("jobs.batch", "default", name, propagation="Background")
            w.client.delete(GROUPS, "default", name)
        w.client.delete(GROUPS, "default", f"empty-{number}")
        for name in (f"lone-{number}", f"lost-{number}"):
            w.client.delete("pods", "default", name)
        await w.clock.sleep(1)
    await w.clock.sleep(400)  # deadlines of commits and pauses of events have passed


@pytest.mark.early
def test_nothing_is_kept_of_gangs_that_came_and_went(play):
    """Given rounds of gangs made and deleted, then every container holds what it held before."""

    async def scenario(w):
        await w.start(nodes=4)
        daemon = w.daemon()
        await come_and_go(w, 0)
        before = held(daemon.app)
        await come_and_go(w, ROUND)
        after = held(daemon.app)
        grown = {path: (before.get(path, 0), n) for path, n in after.items()
                 if n > before.get(path, 0)}  # fmt: skip
        assert grown == {}

    play(scenario)


def test_of_gangs_that_are_gone_a_few_dozen_are_remembered():
    """Given a dozen that wait, while a thousand others came and went one after the other."""
    waiting = [object() for _ in range(12)]  # only who it is counts
    known = GangCache()
    most = 0
    for number in range(1000):
        known.set(object(), number)
        for each in waiting:
            known.set(each, -1)
        known.keep_only(waiting, len(waiting))
        most = max(most, len(known.known))
    assert most <= 64
    assert all(known.get(each) == -1 for each in waiting)
