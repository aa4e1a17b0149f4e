"""The Lease is lost, and the key of the seal with it: what was bound keeps its slots all the same."""

from __future__ import annotations

import pytest

from tests.daemon.places.test_daemon_shares import SMALL, node, share, sliced, slot
from tests.daemon.tenants.tenants import tenant

LEASES, HOME = "leases.coordination.k8s.io", "gpusched-system"
KEY = "gpusched.io/seal-key"


def lose(w, *names):
    """Delete Leases, as a person or a restore does."""
    for name in names or ("gpusched", "gpusched-seal"):
        w.client.delete(LEASES, HOME, name)


def key(w, name="gpusched"):
    """The key in a Lease; empty while there is none."""
    lease = w.client.get(LEASES, HOME, name)
    return ((lease or {}).get("metadata", {}).get("annotations") or {}).get(KEY, "")


def slots(w, *names):
    """All slots of these pods, in order."""
    return sorted(int(n) for name in names for n in slot(w, name)[1].split(","))


async def bind_all_kinds(w):
    """Three shares that fit on no fewer GPUs, two whole GPUs and two slices, all on one node."""
    await w.start(nodes=0, stages=False)
    node(w, "n", {"nvidia.com/gpu": "8", SMALL: "3"}, **{"nvidia.com/gpu.memory": "80000"})
    first = w.daemon()
    for name, part in (("s0", "0.6"), ("s1", "0.6"), ("s2", "60000Mi")):
        share(w, name, part)
    w.pod("whole", gpus=2)
    sliced(w, "sliced", SMALL, 2)
    await w.until(lambda: len(w.bound()) == 5)
    await w.until(lambda: key(w, "gpusched-seal"))
    return first


async def fill(w):
    """What is free is given: three whole GPUs and a slice, none of them twice."""
    w.pod("more", gpus=3)
    sliced(w, "another", SMALL, 1)
    await w.until(lambda: len(w.bound()) == 7)
    assert slots(w, "s0", "s1", "s2", "whole", "more") == list(range(8))
    assert slots(w, "sliced", "another") == [8, 9, 10]


@pytest.mark.parametrize("lives", [False, True], ids=["after-a-death", "under-a-leader"])
@pytest.mark.parametrize(
    "lost", [("gpusched",), ("gpusched-seal",), ()], ids=["one", "copy", "all"]
)
def test_everything_bound_keeps_its_slots(play, lives, lost):
    """Of the two Leases either has the key, a process remembers it, or the claims are disjoint."""

    async def scenario(w):
        first = await bind_all_kinds(w)
        before = key(w)
        if not lives:
            await first.stop()
        lose(w, *lost)
        if not lives:
            first = w.daemon()
        await w.clock.sleep(40)
        await w.until(lambda: first.leading)
        assert (key(w) == before) == (bool(lost) or lives)
        assert key(w, "gpusched-seal") in ({key(w)} if lost != ("gpusched-seal",) else {key(w), ""})
        await fill(w)
        await first.stop()

    play(scenario)


def test_a_standby_that_saw_the_key_goes_on_with_it(play):
    """The daemon has no right to the copy: one that ran while the Lease was there knows its key."""

    async def scenario(w):
        await w.start(nodes=1)
        first = w.daemon(fault=lambda _method, path: "403" if "-seal" in path else "")
        await w.until(lambda: first.leading, within=60)
        second = w.daemon(fault=lambda _method, path: "403" if "-seal" in path else "")
        await w.clock.sleep(5)
        before = key(w)
        assert before
        first.kill()
        lose(w, "gpusched")
        await w.until(lambda: second.leading, within=60)
        assert key(w) == before
        assert w.client.get(LEASES, HOME, "gpusched-seal") is None
        await second.stop()
        for daemon in w.daemons:
            daemon.refused.clear()

    play(scenario)


def test_no_new_key_is_made_while_the_copy_cannot_be_read(play):
    """A server in trouble refuses or fails for a while: that is no proof that there is no key."""
    trouble = ["403"]

    async def scenario(w):
        first = await bind_all_kinds(w)
        before = key(w)
        await first.stop()
        lose(w, "gpusched")
        second = w.daemon(fault=lambda _method, path: trouble[0] if "gpusched-seal" in path else "")
        await w.clock.sleep(10)
        assert not second.leading
        trouble[0] = "500"
        await w.clock.sleep(60)
        assert not second.leading
        trouble[0] = ""
        await w.until(lambda: second.leading)
        assert key(w) == before
        await second.stop()
        for daemon in w.daemons:
            daemon.refused.clear()

    play(scenario)


def test_a_key_that_only_the_lease_has_is_copied(play):
    """After an update of this program: the next leader keeps what is there in both."""

    async def scenario(w):
        await w.start(nodes=1)
        first = w.daemon()
        await w.until(lambda: first.leading and key(w, "gpusched-seal"))
        before = key(w)
        await first.stop()
        lose(w, "gpusched-seal")
        second = w.daemon()
        await w.until(lambda: second.leading and key(w, "gpusched-seal"))
        assert key(w) == key(w, "gpusched-seal") == before
        await second.stop()

    play(scenario)


def test_a_job_that_was_started_is_known_without_the_lease(play):
    """Its start is sealed too: its room is kept for the pods that its controller makes late."""

    async def scenario(w):
        await w.start(nodes=1)
        first = w.daemon()
        await w.until(lambda: first.leading and key(w, "gpusched-seal"))
        none = {"hard": {"pods": "0"}}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": none}
        w.client.create(
            "resourcequotas", {**quota, "metadata": {"name": "none", "namespace": "default"}}
        )
        w.job("started", 1, queue="default", suspend=True)
        await w.until(
            lambda: not w.client.get("jobs.batch", "default", "started")["spec"]["suspend"]
        )
        first.kill()
        lose(w, "gpusched")
        second = w.daemon()
        await w.until(lambda: second.leading)
        await w.clock.sleep(1)
        job = next(iter(second.app.cache.jobs.items.values()))
        assert second.app.cache.seal.fits_start(job)
        assert job.admitted
        await second.stop()

    play(scenario)


def test_a_tenant_gains_nothing_by_a_lost_key(play):
    """Both Leases are gone: forged slots take as many GPUs as are asked for, and nobody's twice."""

    async def scenario(w):
        first = await bind_all_kinds(w)
        mallory = await tenant(w, "mallory")
        theirs = slot(w, "whole")[1].split(",")[0]
        for number in range(8):
            notes = {"gpusched.io/gpu-fraction": "0.01", "gpusched.io/slots": str(number)}
            await mallory.pod(f"tiny-{number}", spec={"nodeName": "n"}, annotations=notes)
        await first.stop()
        lose(w)
        await mallory.pod(
            "a-liar", gpus=1, spec={"nodeName": "n"}, annotations={"gpusched.io/slots": theirs}
        )
        second = w.daemon()
        await w.until(lambda: second.leading)
        w.pod("last", gpus=1)  # eight tiny shares and the liar have one GPU each
        await w.until(lambda: len(w.bound()) == 6)
        honest = slots(w, "s0", "s1", "s2", "whole", "last")
        assert len(set(honest)) == len(honest) == 6
        for pod in w.client.list("pods", "mallory"):
            w.client.delete("pods", "mallory", pod["metadata"]["name"], grace_s=0)
        await second.stop()

    play(scenario)
