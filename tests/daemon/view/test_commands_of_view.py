"""Commands that list: the same lines of the daemon's view and of the API's objects, by one way to ask."""

from __future__ import annotations

import json

import pytest

from gpusched.cli.inspect import get
from gpusched.cli.inspect.get import Question
from gpusched.cli.inspect.listing.view_source import ViewSource
from gpusched.config.model import DEFAULT
from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.view_client import NoView
from gpusched.view.access import ViewAccess
from tests.daemon.inputs.test_bad_queues import queue
from tests.daemon.view.followed import leader, serve

READ_FROM_API = "read from the API, not from the daemon: "


async def listed(w, kind, source=None, **how):
    """What ``gpusched get KIND --source SOURCE`` prints."""
    api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    try:
        if kind == "jobs":
            how["scope"] = "/namespaces/default"
        of = ViewSource(chosen=source, election=DEFAULT.leader_election)
        return await get.read_listing(api, Question(kind=kind, source=of, wide=True, **how))
    finally:
        await api.close()


def columns(listing, *titles):
    """Cells under some titles, by the first cell of each line."""
    places = [listing.header.index(title) for title in titles]
    return {line[0]: tuple(line[place] for place in places) for line in listing.lines}


async def busy_cluster(w, **how):
    """Two nodes: a gang runs, one waits for it, a pod is in queue team; all of it is served."""
    await w.start(nodes=2)
    store, _ = await leader(w)
    queue(w, "team", deserved={"nvidia.com/gpu": "8"}, ordering="Fifo")
    w.gang("runs", 1)
    await w.until(w.bound)
    w.gang("waits", 2)
    w.pod("small", gpus=4, labels={"gpusched.io/queue": "team"})
    await w.clock.sleep(5)
    await serve(w, store, **how)
    return store


@pytest.mark.parametrize("kind", ["jobs", "nodes", "queues"])
def test_daemon_and_api_are_listed_alike(play, kind):
    """Given a leader, then its view is read; and what the API's objects say too is the same."""

    async def scenario(w):
        await busy_cluster(w)
        told, daemon, api = (
            await listed(w, kind),
            await listed(w, kind, "daemon"),
            await listed(w, kind, "api"),
        )
        assert told == daemon
        assert (daemon.notes, api.notes) == ((), ())
        assert daemon.names == api.names
        assert daemon.header == api.header
        if kind == "jobs":
            known = ("KIND", "QUEUE", "STATE", "PODS", "MIN", "GPUS", "MESSAGE", "NODES")
            assert columns(daemon, *known) == columns(api, *known)
            told = columns(daemon, "STATE", "POSITION", "REASON")
            assert told["waits"] == ("Waiting", "1", "InsufficientResources")
        elif kind == "queues":
            assert columns(daemon, "WEIGHT", "RUNNING", "GPUS", "DESERVED", "REQUESTED") == columns(
                api, "WEIGHT", "RUNNING", "GPUS", "DESERVED", "REQUESTED"
            )
        else:
            assert daemon.lines == api.lines

    play(scenario)


def test_the_built_in_queue_has_figures(play):
    """Given no object of the name, then what gangs of queue ``default`` hold, request and are due is told."""

    async def scenario(w):
        await busy_cluster(w)
        daemon = columns(
            await listed(w, "queues"), "RUNNING", "INQUEUE", "GPUS", "FAIRSHARE", "REQUESTED", "ORDERING"
        )  # fmt: skip
        assert daemon["default"] == ("1", "1", "8", "12", "24", "Priority")
        assert daemon["team"] == ("1", "0", "4", "4", "4", "Fifo")

    play(scenario)


def test_without_a_daemon_the_api_is_read_and_that_is_said(play):
    """Given nobody who serves a view, then each kind says so in one sentence; ``--source daemon`` ends with it."""

    async def scenario(w):
        await w.start(nodes=1)
        for kind in ("jobs", "nodes", "queues"):
            told = await listed(w, kind)
            assert told.notes == (f"{READ_FROM_API}no daemon serves a view",)
            with pytest.raises(NoView, match="no daemon serves a view"):
                await listed(w, kind, "daemon")

    play(scenario)


def test_a_tenant_sees_nodes_without_the_names_of_others(play):
    """Given who may list nodes and no pods, then nodes are listed, and no gang on them."""

    async def scenario(w):
        tenant = ViewAccess(namespaces=frozenset(), nodes=True, queues=False)
        await busy_cluster(w, access=tenant)
        nodes = await listed(w, "nodes")
        told = columns(nodes, "FREE", "GANGS").values()
        assert sorted(told) == [("0", "0"), ("4", "0")]
        # Then: what the daemon does not show is asked of the API, which judges for itself.
        queues = await listed(w, "queues")
        assert queues.notes == (f"{READ_FROM_API}this user may not list queues",)

    play(scenario)


def test_a_daemon_of_another_version_is_said(play):
    """Given a view whose nodes lack what this version reads, then that is the reason why the API is read."""

    async def scenario(w):
        store = await busy_cluster(w)
        for name, node in store.nodes.items():
            store.nodes[name] = json.loads(json.dumps({"metadata": {"name": node.metadata.name}}))
        told = await listed(w, "nodes")
        assert len(told.lines) == 2
        (note,) = told.notes
        assert note.startswith(f"{READ_FROM_API}the daemon's view at http://127.0.0.1:")
        assert "is of another version: Object missing required field" in note

    play(scenario)


def test_json_is_what_the_daemon_serves(play):
    """Given ``-o json``, then items are those of ``/v1``."""

    async def scenario(w):
        store = await busy_cluster(w)
        (team,) = [
            each for each in (await listed(w, "queues")).items if each["metadata"]["name"] == "team"
        ]
        assert team["gpus"]["deserved"] == "8"
        assert team["ordering"] == "Fifo"
        assert team["created"] == store.queues["team"].created != ""

    play(scenario)
