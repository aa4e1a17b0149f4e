"""A cluster of the view that tests of ``top`` show: made by frames, looked at as a picture."""

from __future__ import annotations

import asyncio

import msgspec

from gpusched.api.meta.identity import format_time
from gpusched.cli.inspect.live.screen.picture import ClusterPicture
from gpusched.view.frames import GangPut, ViewMoment
from gpusched.view.gang_story import GangStory
from gpusched.view.model import AboutView, GpuTotalsView, HolderView
from gpusched.view.store import ViewStore
from tests.io.serve.page.served_page import (
    decision_made,
    gang_put,
    node_put,
    queue_put,
    slot_view,
)

NOW = 1_800_000_000.0
TOTALS = GpuTotalsView(total=16, idle=7, stranded=3, stranded_by_reason={"Fragmented": 3})
ABOUT = AboutView(
    version="1", daemon="gpusched-0", leading=True, ready="leader", now=format_time(NOW - 5),
    namespaces="all", nodes=True, queues=True, gpu_totals=TOTALS,
)  # fmt: skip
HOSTILE = "evil[red]\x1b[31m\u202e\x07[@click=app.quit]x[/]"
"""Markup of Textual and rich, a colour of the terminal, a mark that turns the direction, a bell."""
SHOWN_HOSTILE = r"evil[red]\x1b[31m\u202e\x07[@click=app.quit]x[/]"
WHY = "needs 8 pods with 8 nvidia.com/gpu; rack r01 has most room, for 3 of 8"


def holder(name, namespace="team-a"):
    """A Job on a GPU."""
    return HolderView(namespace=namespace, kind="Job", name=name)


def runs(name, **more):
    """A Job that runs since a minute."""
    fields = {
        "state": "Running", "placed": 8, "waiting": 0, "min_member": 8, "gpus": "8",
        "nodes": ("node-1",), "since": format_time(NOW - 60), **more,
    }  # fmt: skip
    return gang_put(name, **fields)


def waits(name, position, **more):
    """A Job that waits since ten minutes and may start in twenty."""
    fields = {
        "position": position, "waiting": 8, "min_member": 8, "gpus": "64",
        "reason": "InsufficientResources", "message": WHY, "since": format_time(NOW - 600),
        "estimated_start_time": format_time(NOW + 1200), **more,
    }  # fmt: skip
    return gang_put(name, **fields)


def frames():
    """Two nodes in two racks, two queues, a gang that runs, two that wait, and a decision."""
    full = tuple(slot_view(index, holder("train")) for index in range(8))
    part = tuple(
        slot_view(index, holder("web", "team-b") if not index else None) for index in range(8)
    )
    return [
        node_put("node-1", full, place=("z1", "z1/r01")),
        node_put("node-2", part, place=("z1", "z1/r02")),
        queue_put("research", 8, pending=2),
        queue_put("serving", 1, running=1),
        runs("train"),
        runs("web", namespace="team-b", queue="serving", gpus="1", nodes=("node-2",), placed=1),
        waits("big", 1),
        waits("small", 2, gpus="1", message="waits for its turn", reason="WaitingForTurn"),
        decision_made("train", event="starts", message="Job team-a/train starts", now=NOW - 60),
        decision_made("big", event="waits", message="Job team-a/big waits: " + WHY, now=NOW - 50),
    ]


def store_of(*given):
    """A store that was told frames."""
    store = ViewStore()
    for frame in (*given, ViewMoment(now=NOW)):
        store.take(frame)
    return store


def picture_of(store, **changes):
    """How a store stands."""
    fields = {
        "about": ABOUT, "told": "here", "now": NOW,
        "gangs": [store.gangs[key] for key in sorted(store.gangs)],
        "nodes": list(store.node_page()),
        "queues": [store.queues[name] for name in sorted(store.queues)],
        "decisions": list(store.decisions),
    }  # fmt: skip
    return ClusterPicture(**{**fields, **changes})


class Source:
    """What a screen follows, without any cluster; ``take`` is an event."""

    def __init__(self, *given):
        self.store = store_of(*given)
        self.changes = {}
        self.asked = []
        self.failure = None
        self.order = None
        self.changed = lambda: None

    def take(self, *given, **changes):
        """Something changes."""
        for frame in (*given, ViewMoment(now=NOW)):
            self.store.take(frame)
        self.changes |= changes
        self.changed()

    def picture(self):
        """How it stands."""
        return picture_of(self.store, **self.changes)

    async def run(self):
        """Nothing comes by itself."""
        await asyncio.Event().wait()

    async def story(self, gang):
        """One gang."""
        self.asked.append(gang)
        if self.failure is not None:
            raise self.failure
        told = msgspec.structs.asdict(self.store.gangs[gang])
        members, story = self.store.members(gang), self.store.story(gang)
        return GangStory(**told, members=members, story=story, order=self.order)


def with_members(put, *members):
    """The same gang with these pods."""
    return GangPut(view=put.view, members=members)
