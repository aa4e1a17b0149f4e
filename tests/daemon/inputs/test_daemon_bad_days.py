"""Bad input and bad days: one clear sentence each, and nothing lost."""

from __future__ import annotations

import asyncio
import logging

import pytest
import yaml

from gpusched.base import installed_files
from gpusched.base.errors import InvariantBroken
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver import resource_api as devcluster_api
from gpusched.io.write import binder

CRDS = installed_files.path("manifests") / "crds"


@pytest.fixture
def connections_matter() -> bool:
    """The API server goes away in these tests, with every connection."""
    return True


@pytest.fixture
def trusting(tmp_path):
    """Our definitions without any rule: whatever is posted is stored."""
    folder = tmp_path / "crds"
    folder.mkdir()
    for file in CRDS.glob("*.yaml"):
        crd = yaml.safe_load(file.read_text())
        for version in crd["spec"]["versions"]:
            version["schema"] = {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            }
            version.pop("additionalPrinterColumns", None)
            version.pop("selectableFields", None)  # they need a schema that knows them
        (folder / file.name).write_text(yaml.safe_dump(crd))
    return folder


MALFORMED = (
    {"minMember": "three"},
    {"minMember": -1},
    {"minMember": 10**30},
    {"minMember": [1]},
    {"queue": 7},
    {"queue": {"name": "a"}},
    {"minTaskMember": ["worker"]},
    {"minTaskMember": {"worker": "x"}},
    {"topology": "rack"},
    {"minResources": {"cpu": "1e30"}},
    {"minResources": {"cpu": {}}},
    {"minRuntime": "soon"},
)


def test_a_hundred_malformed_groups_among_good_ones(play, trusting):
    """The good gang runs, each bad one is told why, and nothing of the daemon breaks."""

    async def scenario(w):
        await w.start(nodes=2, definitions=trusting)
        for number in range(100):
            w.group(f"bad-{number}", **MALFORMED[number % len(MALFORMED)])
        w.client.create(
            "podgroups.scheduling.gpusched.io",
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": "no-spec", "namespace": "default"},
                "spec": "nothing",
            },
        )
        w.gang("good", 2)
        w.pod("waits", gpus=1, labels={"gpusched.io/pod-group": "bad-0"})
        w.daemon()
        await w.until(lambda: len(w.running("good")) == 2)
        await w.until(lambda: "spec.minMember" in w.told("waits").get("message", ""))
        await w.clock.sleep(60)
        told = {
            event["involvedObject"]["name"]
            for event in w.client.list("events", "default")
            if event["reason"] == "InvalidSpec"
        }
        assert told >= {f"bad-{number}" for number in range(100)}
        for number in range(100):
            w.client.delete("podgroups.scheduling.gpusched.io", "default", f"bad-{number}")
        w.client.delete("podgroups.scheduling.gpusched.io", "default", "no-spec")

    play(scenario)


def test_absurd_quantities_are_rejected_alone(play, trusting):
    """1e30 GPUs on one pod stop nobody else."""

    async def scenario(w):
        await w.start(nodes=1, definitions=trusting)
        limits = {"limits": {"nvidia.com/gpu": "1e30", "cpu": "99999999999999999999"}}
        w.pod("absurd", spec={"containers": [{"name": "c", "image": "i", "resources": limits}]})
        w.client.create(
            "queues.scheduling.gpusched.io",
            {
                "apiVersion": "scheduling.gpusched.io/v1alpha1",
                "kind": "Queue",
                "metadata": {"name": "odd"},
                "spec": {"capability": {"cpu": "1e30"}},
            },
        )
        w.pod("inside", gpus=1, labels={"gpusched.io/queue": "odd"})
        w.gang("good", 1, gpus=4)
        w.daemon()
        await w.until(lambda: len(w.running("good")) == 1)
        await w.until(lambda: "odd" in w.told("inside").get("message", ""))
        assert "capability" in w.told("inside")["message"]
        assert not w.client.get("pods", "default", "absurd")["spec"].get("nodeName")

    play(scenario)


def test_a_pod_with_sixty_thousand_labels(play):
    """It is stored by the API; it is not ours to place; others are."""

    async def scenario(w):
        await w.start(nodes=1)
        w.pod("heavy", gpus=1, labels={f"l{number}": "x" for number in range(60_000)})
        w.gang("good", 1, gpus=4)
        w.daemon()
        await w.until(lambda: len(w.running("good")) == 1)
        await w.clock.sleep(5)
        assert not w.client.get("pods", "default", "heavy")["spec"].get("nodeName")

    play(scenario)


def test_a_node_that_goes_between_decision_and_binding(play):
    """The gang starts as a whole on nodes that exist."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        await w.until(lambda: daemon.app.cycle is not None and daemon.leading)
        gone = []

        def vanish(plan):
            if plan.binds and not gone:
                gone.append(plan.binds[0].binds[0].node)
                w.client.delete("nodes", None, gone[0])

        daemon.app.cycle.decided.append(vanish)
        w.gang("a", 2)
        await w.until(lambda: gone)
        w.node("late-0")
        w.node("late-1")
        await w.until(lambda: len(w.running("a")) == 2, within=300)
        names = {pod["spec"]["nodeName"] for pod in w.running("a")}
        assert names <= {"node-0", "node-1", "late-0", "late-1"} - set(gone)

    play(scenario)


def test_the_server_goes_for_a_minute_and_comes_back(play):
    """Nothing is lost: what was created meanwhile starts, what ran was left alone."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        w.gang("before", 1)
        await w.until(lambda: len(w.running("before")) == 1)
        await w.unplug()
        w.gang("meanwhile", 1)
        await w.clock.sleep(60)
        assert daemon.app.unready() != ""
        assert not daemon.leading
        await w.plug()
        await w.until(lambda: len(w.running("meanwhile")) == 1, within=120)

    play(scenario)


def test_the_server_goes_in_the_middle_of_a_gang(play):
    """Bindings whose outcome is unknown are read back; no gang stays in part."""

    async def scenario(w):
        await w.start(nodes=4)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading and daemon.app.cycle.sessions > 0)
        unplugged = []

        async def cut():
            await w.unplug()
            await w.clock.sleep(20)
            await w.plug()

        def then_cut(plan):
            if plan.binds and not unplugged:
                unplugged.append(asyncio.create_task(cut()))

        daemon.app.cycle.decided.append(then_cut)
        w.gang("a", 4)
        await w.until(lambda: unplugged and unplugged[0].done())
        await w.until(lambda: len(w.running("a")) == 4, within=200)

    play(scenario)


def test_no_server_at_the_start(play):
    """It says so, is not ready, tries again, and works when the server comes."""

    async def scenario(w):
        daemon = w.daemon()
        await w.clock.sleep(20)
        assert "have not been listed yet" in daemon.app.unready()
        assert "cannot connect to the API server" in daemon.app.unready()
        assert not daemon.task.done()
        await w.start(nodes=1)
        w.gang("a", 1)
        await w.until(lambda: len(w.running("a")) == 1, within=120)

    play(scenario)


def test_a_server_that_is_away_is_told_once_for_all_watches(play, caplog):
    """Given a daemon with a score of watches, an outage and its end are a few lines of the log, not some for each."""
    told = []

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        w.gang("a", 1)
        await w.until(lambda: len(w.running("a")) == 1, within=120)
        caplog.clear()
        await w.unplug()
        await w.clock.sleep(90)  # so long that the leadership is lost, and all is read again
        await w.plug()
        w.gang("b", 1)
        await w.until(lambda: len(w.running("b")) == 1, within=120)
        await w.clock.sleep(30)
        told.extend(
            record.getMessage() for record in caplog.records if "watch.reflector" in record.name
        )

    with caplog.at_level(logging.INFO, logger="gpusched"):
        play(scenario)
    assert sum("the stream broke" in line for line in told) == 1
    assert sum("cannot connect to the API server" in line for line in told) == 2
    assert told.count("the API server can be reached again") == 1
    assert told.count("watch works again") == 0


def test_no_definitions_at_the_start(play, tmp_path):
    """It says what to apply, goes on without after some seconds, and with them when they are there."""
    empty = tmp_path / "none"
    empty.mkdir()

    async def scenario(w):
        await w.start(nodes=1, definitions=empty)
        daemon = w.daemon()
        w.pod("lone", gpus=1)
        await w.clock.sleep(3)
        assert "kubectl apply -k manifests/" in daemon.app.unready()
        await w.until(lambda: len(w.running()) == 1)
        w.pod("of-a-gang", gpus=1, labels={"gpusched.io/pod-group": "g"})
        for file in sorted(CRDS.glob("*.yaml")):
            w.client.create(
                "customresourcedefinitions.apiextensions.k8s.io", yaml.safe_load(file.read_text())
            )
        await w.clock.sleep(1)
        w.group("g", minMember=1)
        await w.until(lambda: len(w.running()) == 2, within=120)

    play(scenario)


def test_a_stop_without_any_server_ends(play):
    """SIGTERM is obeyed although nothing answers."""

    async def scenario(w):
        daemon = w.daemon()
        await w.clock.sleep(5)
        await daemon.stop()
        await w.start(nodes=0)

    play(scenario)


def test_bindings_that_fail_are_tried_again(play, monkeypatch):
    """The server fails three times after the binding was decided: read back, sent again."""
    calls = []
    original = devcluster_api.bind_pod

    def fail(*args, **how):
        calls.append(1)
        if len(calls) < 4:
            raise StatusError({"kind": "Status", "status": "Failure", "code": 500, "message": "no"})
        return original(*args, **how)

    monkeypatch.setattr(devcluster_api, "bind_pod", fail)

    async def scenario(w):
        await w.start(nodes=2)
        w.daemon()
        w.gang("a", 2)
        await w.until(lambda: len(w.running("a")) == 2, within=200)
        assert len(calls) > 3

    play(scenario)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_stumbles_at_the_start(play, method):
    """The first answers about the lease's namespace are errors: it is tried again."""
    left = [3]

    def stumble(asked, path):
        if asked == method and path.startswith("/api/v1/namespaces") and left[0]:
            left[0] -= 1
            return "503"
        return ""

    async def scenario(w):
        await w.start(nodes=1)
        w.daemon(fault=stumble)
        w.gang("a", 1)
        await w.until(lambda: len(w.running("a")) == 1)
        assert left == [0]

    play(scenario)


def test_a_stop_while_the_server_is_away_ends(play):
    """Commits under way are left to the successor, and the process ends in time."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        cuts = []

        def cut(plan):
            if plan.binds and not cuts:
                cuts.append(asyncio.create_task(w.unplug()))

        daemon.app.cycle.decided.append(cut)
        w.gang("a", 2)
        await w.until(lambda: cuts)
        begun = w.clock.monotonic()
        await daemon.stop()
        assert w.clock.monotonic() - begun < 40
        await w.plug()
        w.daemon()
        await w.until(lambda: len(w.running("a")) == 2, within=100)

    play(scenario)


def test_a_commit_that_contradicts_itself_ends_the_process_with_its_story(play, monkeypatch):
    """Nothing goes on half alive: the error comes out, and nothing was bound."""

    def broken(*_args, **_how):
        raise InvariantBroken("made by the test")

    monkeypatch.setattr(binder, "advance_commit", broken)

    async def scenario(w):
        await w.start(nodes=1)
        daemon = w.daemon()
        w.gang("a", 1)
        await asyncio.wait([daemon.task], timeout=60)
        assert "made by the test" in repr(daemon.task.exception())
        assert w.bound() == []

    play(scenario)
