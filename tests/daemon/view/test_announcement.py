"""Where the view is served, told in its Lease: it stays told, and no daemon passes tokens to the wrong machine."""

from __future__ import annotations

import socket

import pytest

from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.announcement import ADDRESS, MACHINE, ViewAnnouncement, announced_address

LEASES, HOME, NAME = "leases.coordination.k8s.io", "gpusched-system", "gpusched-view"


async def announcement(w):
    """Of a daemon on the cluster."""
    api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    w.closing.append(api.close)
    return ViewAnnouncement(
        api,
        namespace=HOME,
        lease="gpusched",
        clock=w.clock,
        create_if_missing=False,
    )


def lease(w, **annotations):
    """The Lease as a manifest makes it, or as somebody wrote it."""
    metadata = {"name": NAME, "namespace": HOME, "annotations": annotations}
    w.client.create(
        LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    )


async def start(w, **annotations):
    """A cluster with the Lease."""
    await w.start(nodes=0)
    names = {"name": HOME}
    w.client.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": names})
    lease(w, **annotations)


def test_a_lease_that_is_made_anew_is_told_again(play):
    """Given a leader that told where its view is: deleted and applied again, the Lease tells it within ten seconds."""

    async def when(w):
        await start(w)
        told, url = await announcement(w), "http://10.0.0.7:8081"
        await told.beat(0, leading=True, url=url)
        w.client.delete(LEASES, HOME, NAME)
        lease(w)
        for number in range(1, 6):
            await told.beat(number, leading=True, url=url)
        assert announced_address(w.client.get(LEASES, HOME, NAME)) == (url, socket.gethostname())

    play(when)


@pytest.mark.parametrize(
    ("machine", "known"),
    [("another-machine", ""), (socket.gethostname(), "http://127.0.0.1:8081")],
)
def test_an_address_of_another_machine_alone_is_not_passed_on_to(play, machine, known):
    """Given a leader that serves its machine alone: a standby elsewhere knows of no address, as its own is meant by it."""

    async def when(w):
        await start(w, **{ADDRESS: "http://127.0.0.1:8081", MACHINE: machine})
        told = await announcement(w)
        await told.beat(0, leading=False, url="http://10.0.0.8:8081")
        assert told.leader == known

    play(when)


@pytest.mark.parametrize("leading", [False, True])
def test_a_server_that_is_away_is_told_once(play, caplog, leading):
    """Given a Lease that cannot be reached for a minute: one line says so, and the next trouble another."""

    async def when(w):
        await start(w)
        told, url = await announcement(w), "http://10.0.0.7:8081"
        await told.beat(0, leading=leading, url=url)
        for _ in range(2):
            await w.unplug()
            for number in range(30):
                await told.beat(number, leading=leading, url=url)
            await w.plug()
            for number in range(10):
                await told.beat(number, leading=leading, url=url)

    play(when)
    lines = [record.getMessage() for record in caplog.records]
    assert lines.count("people cannot find the view by its Lease") == 2
