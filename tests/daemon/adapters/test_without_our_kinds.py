"""A cluster in which none of our CRDs is installed: everything but PodGroups and Queues of ours works."""

from __future__ import annotations

import logging

import pytest
import yaml

from gpusched.base import installed_files
from gpusched.devcluster.registry.gangs.features import all_gates
from tests.daemon.adapters.native_gang_player import Player

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
KINDS = ("podgroups", "queues", "topologies", "reservations")


@pytest.fixture
def nothing(tmp_path):
    """A folder without definitions."""
    folder = tmp_path / "none"
    folder.mkdir()
    return folder


def install(w, *plurals):
    """Our CRDs of these plurals, as kubectl apply would make them."""
    for file in sorted((installed_files.path("manifests") / "crds").glob("*.yaml")):
        for body in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if body and body["spec"].get("names", {}).get("plural") in plurals:
                w.client.create(CRDS, body)


def running(w):
    """Names of pods that run, sorted."""
    return sorted(
        pod["metadata"]["name"] for pod in w.pods() if pod["status"].get("phase") == "Running"
    )


def test_native_gangs_jobs_and_pods_start_and_it_is_told_what_is_missing(play, nothing, caplog):
    """Given no CRD of ours, gangs of Kubernetes, by label of a Job, and lone pods start."""

    async def scenario(w):
        await w.start(nodes=0, definitions=nothing, gangs=all_gates("1.36"))
        player = Player(w)
        await player.prepare({"nodes": {"n1": 2, "n2": 2}})
        daemon = w.daemon()
        player.group("a", 3)
        player.pods("a-0..1", group="a")
        w.job("j", 1, gpus=1)
        await w.until(lambda: len(w.running()) == 1)
        await w.until(lambda: "needs 3 pods together; 2" in player.group_says("a"))
        player.pods("a-2", group="a")
        await w.until(lambda: len(running(w)) == 4)
        missing = ", ".join(f"{kind}.scheduling.gpusched.io" for kind in KINDS)
        assert daemon.app.readiness() == (True, f"leader; not installed: {missing}")

    with caplog.at_level(logging.WARNING, logger="gpusched"):
        play(scenario)
    told = [each.getMessage() for each in caplog.records if "going on without" in each.getMessage()]
    assert len(told) == len(KINDS)
    assert all("kubectl apply -k manifests/" in each for each in told)


def test_our_kinds_count_once_they_are_installed(play, nothing):
    """Given a daemon that goes on without, when the CRDs come, a queue's capability holds."""

    async def scenario(w):
        await w.start(nodes=0, definitions=nothing, gangs=all_gates("1.36"))
        player = Player(w)
        await player.prepare({"nodes": {"n1": 2}})
        daemon = w.daemon()
        player.pods("s-0")
        await w.until(lambda: running(w) == ["s-0"])
        install(w, *KINDS)
        await w.clock.sleep(60)
        assert daemon.app.readiness() == (True, "leader")
        body = {"apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "Queue"}
        spec = {"capability": {"nvidia.com/gpu": "0"}}
        w.client.create(
            "queues.scheduling.gpusched.io", body | {"metadata": {"name": "q"}, "spec": spec}
        )
        player.pods("s-1", labels={"gpusched.io/queue": "q"})
        await w.until(lambda: "queue q" in w.told("s-1").get("message", ""))
        assert running(w) == ["s-0"]

    play(scenario)


def test_a_kind_that_was_there_is_waited_for(play):
    """Given objects that were read, when a CRD vanishes, nothing is decided as if they were none."""

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading and not daemon.app.unready())
        w.client.delete(CRDS, None, "queues.scheduling.gpusched.io")
        await w.until(lambda: "kubectl apply -k manifests/" in daemon.app.unready(), within=180)
        install(w, "queues")
        await w.until(lambda: not daemon.app.unready(), within=90)

    play(scenario)
