"""Whoever follows the view keeps what its server has, through losses and resets."""

from __future__ import annotations

import asyncio

import pytest

from gpusched.io.serve.child import ViewListener
from gpusched.io.serve.followed_view import FollowedView
from gpusched.io.serve.reviews import AccessRefused
from gpusched.io.serve.view_client import NoView, ViewRoute
from gpusched.io.serve.view_server import ViewServer
from gpusched.lab.virtual_time.loop import run_virtual
from gpusched.view.access import EVERYTHING, ViewAccess
from gpusched.view.frames import PartsGone, QueuePut, ViewHead, ViewMoment, ViewReset
from gpusched.view.model import GpuTotalsView, QueueGpus, QueueView, ViewName
from gpusched.view.store import ViewStore

from .test_view_server import decision, gang, node

HEAD = ViewHead(
    version="1", daemon="d", leading=True, ready="ok",
    gpu_totals=GpuTotalsView(total=8, idle=3, stranded=1, stranded_by_reason={"Fragmented": 1}),
)  # fmt: skip
QUEUE = QueuePut(view=QueueView(metadata=ViewName(name="q"), gpus=QueueGpus(allocated="8")))


class Daemon:
    """Serves a store on one port, in several lives."""

    def __init__(self, clock, access):
        self.clock, self.access, self.port = clock, access, 0

    async def begin(self, *frames):
        """A life: its store knows these frames alone."""
        self.store = ViewStore()

        async def authorized(_request, _namespaces):
            if self.access is None:
                raise AccessRefused(401, "Unauthorized", "say who you are")
            return self.access

        self.server = ViewServer(self.store, self.clock, authorized)
        self.listener = ViewListener(self.server.application(), self.clock)
        self.port = await self.listener.start([("127.0.0.1", self.port)])
        self.take(HEAD, *frames)

    def take(self, *frames):
        """Frames, and the moment that ends them."""
        for frame in (*frames, ViewMoment(now=1e9)):
            self.server.moment(self.store.take(frame))

    async def end(self):
        """The process ends."""
        await self.listener.stop()


def followed(scenario, *frames, access=EVERYTHING):
    """Run a scenario with one that follows a daemon which was told some frames."""

    async def main(clock):
        daemon = Daemon(clock, access)
        await daemon.begin(*frames)
        changes = asyncio.Event()

        async def find():
            return ViewRoute(
                base=f"http://127.0.0.1:{daemon.port}", headers={}, access=None, told="here"
            )

        view = FollowedView(find, clock, changes.set)
        running = None
        try:
            await view.read()
            running = asyncio.create_task(view.run())
            return await scenario(daemon, view, changes)
        finally:
            if running is not None:
                running.cancel()
                await asyncio.wait([running])
            await daemon.end()

    return run_virtual(main)


async def until(true, changes):
    """Wait for changes until something is true."""
    async with asyncio.timeout(60):
        while not true():
            changes.clear()
            await changes.wait()


def test_what_is_read_is_what_the_server_has():
    """Given gangs, nodes, queues and decisions: all of them are there before anything changes."""

    async def when(daemon, view, _changes):
        return daemon.store, view.store, view.about

    frames = [gang("a"), gang("b", state="Running"), node("n"), QUEUE, decision("a")]
    theirs, ours, about = followed(when, *frames)
    assert (ours.gangs, ours.nodes, ours.queues) == (theirs.gangs, theirs.nodes, theirs.queues)
    assert list(ours.decisions) == list(theirs.decisions)
    assert (about.daemon, about.ready, about.source, about.namespaces) == (
        "d",
        "ok",
        "daemon",
        "all",
    )
    assert about.gpu_totals == HEAD.gpu_totals


def test_each_event_is_applied():
    """Given one that follows: what is new, another or gone is so here, and decisions are there once."""

    async def when(daemon, view, changes):
        daemon.take(
            gang("a", state="Running"), PartsGone(gangs=("team-a/Job/c",), queues=("q",)), node("n"),
            decision("a"),
        )  # fmt: skip
        await until(lambda: len(view.store.decisions) == 2, changes)
        return daemon.store, view.store

    theirs, ours = followed(when, gang("a"), gang("c"), QUEUE, decision("c"))
    assert ours.gangs == theirs.gangs
    assert [each.state for each in ours.gangs.values()] == ["Running"]
    assert (list(ours.nodes), list(ours.queues)) == (["n"], [])
    assert list(ours.decisions) == list(theirs.decisions)


def test_a_term_that_ends_is_no_loss():
    """Given a reset: everything is read again, and nobody is told that the picture is old."""

    async def when(daemon, view, changes):
        daemon.take(ViewReset(), gang("new"))
        await until(lambda: "team-a/Job/new" in view.store.gangs, changes)
        daemon.take(gang("newer"))
        await until(lambda: "team-a/Job/newer" in view.store.gangs, changes)
        return list(view.store.gangs), view.lost

    assert followed(when, gang("old")) == (["team-a/Job/new", "team-a/Job/newer"], "")


def test_a_daemon_that_dies_leaves_its_picture_until_the_next_one_answers():
    """Given a daemon that ends: what was read stays and is told to be old; then all is of the next."""

    async def when(daemon, view, changes):
        await daemon.end()
        await until(lambda: view.lost, changes)
        lost, at, kept = view.lost, view.lost_at, list(view.store.gangs)
        await asyncio.sleep(30)
        assert view.lost_at == at
        await daemon.begin(gang("b"))
        await until(lambda: not view.lost, changes)
        return lost, kept, list(view.store.gangs)

    lost, kept, then = followed(when, gang("a"))
    assert "daemon" in lost
    assert (kept, then) == (["team-a/Job/a"], ["team-a/Job/b"])


def test_a_server_that_hangs_is_lost():
    """Given a server that answers no question any more: it is lost though its connection is open."""

    async def when(daemon, view, changes):
        async def never(_request, _namespaces):
            await asyncio.Event().wait()

        daemon.server._authorized = never
        await until(lambda: view.lost, changes)
        return view.lost

    assert "does not answer" in followed(when, gang("a"))


def test_what_may_not_be_listed_is_not_asked_for():
    """Given rights to one namespace alone: its gangs are there, nodes and queues are not, nor totals."""
    mine = ViewAccess(namespaces=frozenset({"team-a"}), nodes=False, queues=False)

    async def when(_daemon, view, _changes):
        return list(view.store.gangs), list(view.store.nodes), view.about

    gangs, nodes, about = followed(
        when, gang("a"), gang("b", namespace="team-b"), node("n"), QUEUE, access=mine
    )
    assert (gangs, nodes) == (["team-a/Job/a"], [])
    assert (about.namespaces, about.nodes, about.gpu_totals) == (("team-a",), False, None)


def test_who_is_not_known_is_told_so():
    """Given a token that the server does not know: one sentence."""
    with pytest.raises(NoView, match="say who you are"):
        followed(None, gang("a"), access=None)


def test_one_gang_with_its_story():
    """Given a gang and a decision about it: its pods and the decision, however it is called."""

    async def when(_daemon, view, _changes):
        return await view.story("team-a/Job/a")

    told = followed(when, gang("a"), decision("a"))
    assert (told.key, [each.name for each in told.members]) == ("team-a/Job/a", ["a-0"])
    assert [each.event for each in told.story] == ["waits"]
