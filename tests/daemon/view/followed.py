"""The view of a daemon in a world: followed from its first session on, and served."""

from __future__ import annotations

import msgspec

from gpusched.config.model import DEFAULT
from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.announcement import ViewAnnouncement
from gpusched.io.serve.child import ViewListener
from gpusched.io.serve.view_server import ViewServer
from gpusched.view.access import EVERYTHING
from gpusched.view.follower import SeenSession, ViewFollower
from gpusched.view.frames import ViewHead, decode_frame, encode_frame
from gpusched.view.gang_story import GangStory
from gpusched.view.podless_jobs import podless_job_views
from gpusched.view.store import ViewStore


def follow(w, daemon, looks):
    """A store that follows a daemon's sessions while ``looks`` says so, and the last one that it saw."""
    store, follower, last = ViewStore(), ViewFollower(), []

    def session(snapshot, plan, decision):
        app = daemon.app
        seen = SeenSession(
            snapshot=snapshot,
            plan=plan,
            order=decision.order,
            reserved=decision.reserved,
            levels=app.cycle.rules.session_cache.topology_levels(
                snapshot.nodes, snapshot.topologies
            ),
            unreadable=[each for each in app.cache.charged.values() if each.pending],
            plugins=app.cycle.rules.policy.plugins,
            podless=lambda: podless_job_views(app.cache),
            is_there=app.cache.families.is_active,
        )
        last[:] = [seen]
        if not looks():
            return
        for frame in follower.changes(seen):
            if frame is not None:  # through the pipe and back
                store.take(decode_frame(encode_frame(frame)))

    daemon.app.cycle.shown.append(session)
    return store, last


async def leader(w, looks=lambda: True):
    """A daemon that decides, followed from its first session on."""
    daemon = w.daemon()
    await w.until(lambda: daemon.app.cycle is not None)
    store, last = follow(w, daemon, looks)
    await w.until(lambda: daemon.leading)
    return store, last


async def serve(w, store, *, access=EVERYTHING):
    """Serve a store over HTTP to all who find it by its Lease, until the world ends."""

    async def authorized(_request, _namespaces):
        return access

    store.take(ViewHead(version="1", daemon="d", leading=True))
    listener = ViewListener(ViewServer(store, w.clock, authorized).application(), w.clock)
    port = await listener.start([("127.0.0.1", 0)])
    w.closing.append(listener.stop)
    election = DEFAULT.leader_election
    api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    announcement = ViewAnnouncement(
        api, namespace=election.lease_namespace, lease=election.lease_name, clock=w.clock,
        create_if_missing=True,
    )  # fmt: skip
    await announcement.beat(0, leading=True, url=f"http://127.0.0.1:{port}")
    await api.close()


class StoreSource:
    """Where commands read a followed daemon's view from, without HTTP."""

    def __init__(self, store):
        self._store = store

    async def read(self, _api, *, of_daemon, of_api):
        """As ``ViewSource.read`` where a daemon serves its view."""
        del of_api
        return await of_daemon(self), ()

    async def gangs(self, *, namespace):
        """As ``ViewClient.gangs``."""
        return [each for each in self._store.gangs.values() if each.metadata.namespace == namespace]

    async def gang(self, namespace, kind, name):
        """As ``ViewClient.gang``."""
        key = f"{namespace}/{kind}/{name}"
        view = self._store.gangs.get(key)
        if view is None:
            return None
        told = msgspec.structs.asdict(view)
        members, story = self._store.members(key), self._store.story(key)
        order = self._store.order(view, EVERYTHING)
        return GangStory(**told, members=members, story=story, order=order)
