"""What users of one namespace read names nothing of others where the configuration says so."""

from __future__ import annotations

import json
import logging

import pytest

from tests.daemon.conftest import GROUPS, pod_spec
from tests.daemon.sentences.explained import explained, facts

MINE, THEIRS = "default", "team-b"


def theirs(w, name, *, gpus=8, **more):
    """A pod of the other namespace."""
    spec = {**pod_spec(gpus), **more.pop("spec", {})}
    meta = {"name": name, "namespace": THEIRS, **more}
    w.client.create("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def their_group(w, name, count, *, kind, **spec):
    """A gang of the other namespace whose pods want a node of a kind each."""
    w.client.create(
        GROUPS,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": THEIRS}, "spec": {"minMember": count, **spec},
        },
    )  # fmt: skip
    for number in range(count):
        labels = {"gpusched.io/pod-group": name}
        theirs(w, f"{name}-{number}", labels=labels, spec={"nodeSelector": {"kind": kind}})


def read_in(w, namespace):
    """All that users of a namespace may read of what was said there, as one text."""
    found = [
        *w.client.list("pods", namespace), *w.client.list(GROUPS, namespace),
        *w.client.list("jobs.batch", namespace), *w.client.list("events", namespace),
    ]  # fmt: skip
    said = [
        (each.get("message"), each.get("note"), each.get("status", {}).get("conditions"))
        for each in found
    ]
    return json.dumps(said)


async def neighbours(w, *, config_file=""):
    """One's own gangs wait for a level, a port and room; another is evicted: by those of team-b."""
    await w.start(nodes=0)
    for number, kind in enumerate("aacc"):
        w.node(f"node-{number}", kind=kind, **{"gpusched.io/rack": f"rack-{kind}"})
    w.client.create(
        "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": THEIRS}}
    )
    w.client.create(
        "priorityclasses.scheduling.k8s.io", {"metadata": {"name": "high"}, "value": 1000}
    )
    daemon = w.daemon(config_file=config_file)
    await w.until(lambda: daemon.leading)
    ports = pod_spec(1)["containers"]
    ports[0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    theirs(w, "secret-0", spec={"containers": ports, "nodeName": "node-0"})
    theirs(w, "secret-1", spec={"nodeName": "node-1"})
    for number in (2, 3):
        w.pod(f"mine-{number}", spec={"nodeName": f"node-{number}"})
    await w.clock.sleep(5)
    w.group("racked", minMember=2, topology={"required": "rack"})
    for number in range(2):
        labels = {"gpusched.io/pod-group": "racked"}
        w.pod(f"racked-{number}", labels=labels, spec={"nodeSelector": {"kind": "a"}})
    w.pod("ported", gpus=1, spec={"containers": ports, "nodeSelector": {"kind": "a"}})
    await w.clock.sleep(5)
    their_group(w, "secret-high", 2, kind="c", priorityClassName="high")
    await w.until(lambda: len(w.client.list("pods", MINE)) == 3)
    await w.clock.sleep(5)


async def why(w, word, name):
    (told,) = facts(await explained(w, word, name), "why")
    return told


@pytest.fixture
def lines(caplog):
    """Lines of the log of decisions with their facts."""

    def told():
        return [
            f"{each.message} {vars(each)['gpusched_facts']}"
            for each in caplog.records
            if each.name == "gpusched.io.decisions.decision_log"
        ]

    with caplog.at_level(logging.INFO, logger="gpusched.io.decisions.decision_log"):
        yield told


RACKED = "best rack rack-a has room for 0 (1 held by {}, 1 by {})"
PORTED = "1 has no free host port for it (taken by {})"
SOMEBODY = "a workload of another namespace"


def test_names_of_other_namespaces_are_not_told(play, lines, tmp_path):
    """Given ``namesOfOtherNamespaces: hidden``, then conditions, events and explain say that neighbours are in the way, not who."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("namesOfOtherNamespaces: hidden\n")

    async def scenario(w):
        await neighbours(w, config_file=str(file))
        mine = read_in(w, MINE)
        assert "secret" not in mine
        assert THEIRS not in mine
        assert RACKED.format(SOMEBODY, SOMEBODY) in await why(w, "podgroup", "racked")
        assert PORTED.format(SOMEBODY) in await why(w, "pod", "ported")
        assert f"preempted for {SOMEBODY}: it needs room for 2 pods" in mine
        # and: operators read all of it in the log
        told = "\n".join(lines())
        assert "Pod default/mine-2 loses 1 pod for PodGroup team-b/secret-high" in told
        assert "taken by team-b/secret-0" in told

    play(scenario)


def test_they_are_told_unless_the_configuration_hides_them(play, tmp_path):
    """Given no such setting, then the names are in the sentences; with ``hidden`` they go."""
    file = tmp_path / "gpusched.yaml"
    file.write_text("{}\n")

    async def scenario(w):
        await neighbours(w, config_file=str(file))
        held = RACKED.format("team-b/secret-0", "team-b/secret-1")
        assert held in await why(w, "podgroup", "racked")
        assert PORTED.format("team-b/secret-0") in await why(w, "pod", "ported")
        assert "preempted for team-b/secret-high" in read_in(w, MINE)
        file.write_text("namesOfOtherNamespaces: hidden\n")
        await w.until(lambda: SOMEBODY in w.condition("racked").get("message", ""), within=60)

    play(scenario)
