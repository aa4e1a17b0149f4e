"""Several Topologies, levels that repeat themselves, more domains than count: told, and decided."""

from __future__ import annotations

import attrs
import pytest

from gpusched.api.meta.identity import UID, ResourceVersion
from gpusched.api.policy.kinds import Topology
from gpusched.testing import entities
from gpusched.topology import levels as domain
from gpusched.topology import topology_verdicts

TOPOLOGIES = "topologies.scheduling.gpusched.io"
ROW = "example.com/row"


def topology(w, name, *levels):
    """A Topology of pairs of level and node label."""
    return w.client.create(
        TOPOLOGIES,
        {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": name},
            "spec": {"levels": [{"name": level, "nodeLabel": label} for level, label in levels]},
        },
    )


def ready(w, name):
    """The condition Ready, empty while nobody wrote it."""
    status = w.client.get(TOPOLOGIES, None, name).get("status") or {}
    found = [each for each in status.get("conditions", ()) if each["type"] == "Ready"]
    return found[0] if found else {}


def warnings(w, name):
    """Reasons and sentences of the Warnings about a Topology."""
    return [
        (each["reason"], each["message"])
        for each in w.client.list("events")
        if each["involvedObject"]["kind"] == "Topology"
        and each["involvedObject"]["name"] == name
        and each["type"] == "Warning"
    ]


def metric(daemon, name):
    """The value of a metric by its name and labels."""
    for line in daemon.app.telemetry.render().decode().splitlines():
        if line.startswith(name):
            return float(line.rpartition(" ")[2])
    return None


def test_a_node_in_two_racks_is_in_that_of_the_first_topology(play):
    """Given two Topologies that disagree, the first by name counts, and the other is told where."""

    async def scenario(w):
        await w.start(nodes=0)
        for number in range(4):  # racks 0 0 1 1 by one label, 0 1 0 1 by the other
            labels = {"gpusched.io/rack": f"r{number // 2}", ROW: f"w{number % 2}"}
            w.node(f"node-{number}", **labels)
        topology(w, "bbb", ("rack", ROW))
        topology(w, "aaa", ("rack", "gpusched.io/rack"))
        daemon = w.daemon()
        w.gang("train", 2)
        w.client.patch(
            "podgroups.scheduling.gpusched.io", "default", "train",
            {"spec": {"topology": {"required": "rack"}}},
        )  # fmt: skip
        await w.until(lambda: len(w.bound("train")) == 2)
        racks = {int(pod["spec"]["nodeName"][-1]) // 2 for pod in w.bound("train")}
        assert len(racks) == 1
        await w.until(lambda: ready(w, "aaa") and ready(w, "bbb"))
        assert ready(w, "aaa")["status"] == "True"
        assert ready(w, "aaa")["reason"] == "InUse"
        told = ready(w, "bbb")
        assert told["status"] == "False"
        assert told["reason"] == "TopologyConflict"
        assert "whose name sorts first counts, which is aaa" in told["message"]
        # node-0 is in r0 and w0, and so on: other names are other domains.
        assert "4 nodes would be elsewhere: node node-0 is in rack r0" in told["message"]
        assert "delete this one" in told["message"]
        await w.until(lambda: warnings(w, "bbb"))
        assert warnings(w, "bbb") == [("TopologyConflict", told["message"])]
        assert warnings(w, "aaa") == []
        assert metric(daemon, "gpusched_topology_conflicts") == 1
        assert metric(daemon, 'gpusched_topology_nodes{state="crossed"}') == 4
        await w.clock.sleep(120)
        assert sum("/topologies/" in write.path for write in w.journal) == 2
        w.client.delete(TOPOLOGIES, None, "aaa")
        await w.until(lambda: ready(w, "bbb")["status"] == "True")
        assert metric(daemon, "gpusched_topology_conflicts") == 0

    play(scenario)


def test_the_topology_named_default_comes_before_all_names(play):
    """Given Topologies aaa and default that agree, default counts and aaa is told so."""

    async def scenario(w):
        await w.start(nodes=2)
        topology(w, "aaa", ("rack", "gpusched.io/rack"))
        topology(w, "default", ("rack", "gpusched.io/rack"))
        w.daemon()
        await w.until(lambda: ready(w, "default").get("status") == "True")
        await w.until(lambda: ready(w, "aaa").get("reason") == "TopologyConflict")
        assert "the one named default counts" in ready(w, "aaa")["message"]
        assert "elsewhere" not in ready(w, "aaa")["message"]

    play(scenario)


def test_two_levels_with_one_label_are_told_on_the_object(play):
    """Given a Topology that says one label twice, it is not used and says why; mended, it is."""

    async def scenario(w):
        await w.start(nodes=2)
        topology(w, "default", ("zone", ROW), ("rack", ROW))
        w.daemon()
        await w.until(lambda: ready(w, "default"))
        assert ready(w, "default")["status"] == "False"
        assert ready(w, "default")["reason"] == "InvalidSpec"
        assert "nodeLabel" in ready(w, "default")["message"]
        await w.until(lambda: warnings(w, "default"))
        levels = [{"name": "rack", "nodeLabel": "gpusched.io/rack"}]
        w.client.patch(TOPOLOGIES, None, "default", {"spec": {"levels": levels}})
        await w.until(lambda: ready(w, "default")["status"] == "True")

    play(scenario)


@pytest.mark.parametrize("answer", ["404", "403"])
def test_a_topology_of_an_earlier_version_has_no_status(play, answer):
    """Given a CRD without status, or a role without the right, events tell and nothing repeats."""

    async def scenario(w):
        await w.start(nodes=2)
        topology(w, "aaa", ("rack", ROW))
        topology(w, "default", ("rack", "gpusched.io/rack"))
        daemon = w.daemon()
        asked = []

        def fault(method, path):
            if path.endswith("/status") and "/topologies/" in path:
                asked.append(path)
                return answer
            return ""

        daemon.fault = fault
        await w.until(lambda: warnings(w, "aaa"))
        await w.clock.sleep(60)
        assert sorted(asked) == sorted(set(asked))
        w.gang("good", 2)
        await w.until(lambda: len(w.running("good")) == 2)
        assert ready(w, "aaa") == {}
        assert daemon.leading

    play(scenario)


def test_domains_beyond_the_bound_are_outside_and_counted(play, monkeypatch):
    """Given more racks than count, nodes beyond are in none, are told, and take other pods."""
    for module in (domain, topology_verdicts):
        monkeypatch.setattr(module, "DOMAINS_PER_LEVEL_MAX", 2)

    async def scenario(w):
        await w.start(nodes=0)
        for number in range(4):
            w.node(f"node-{number}", **{"gpusched.io/rack": f"r{number}"})
        topology(w, "default", ("rack", "gpusched.io/rack"), ("host", "kubernetes.io/hostname"))
        daemon = w.daemon()
        await w.until(lambda: ready(w, "default").get("status") == "True")
        assert (
            "level rack has more than 2 domains: 2 nodes beyond" in ready(w, "default")["message"]
        )
        assert metric(daemon, 'gpusched_topology_nodes{state="outside"}') == 2
        await w.until(lambda: warnings(w, "default"))
        for number in range(3):
            w.group(f"g{number}", minMember=1, topology={"required": "rack"})
            w.pod(f"g{number}", labels={"gpusched.io/pod-group": f"g{number}"})
        await w.until(lambda: len(w.bound()) == 2)
        assert {pod["spec"]["nodeName"] for pod in w.bound()} == {"node-0", "node-1"}
        for name in ("plain-0", "plain-1"):
            w.pod(name)
        await w.until(lambda: len(w.bound()) == 4)

    play(scenario)


def test_domains_of_labels_alone_are_bounded_and_told(play, monkeypatch):
    """Given no Topology and more labelled racks than count, then an event about us tells, once."""
    for module in (domain, topology_verdicts):
        monkeypatch.setattr(module, "DOMAINS_PER_LEVEL_MAX", 2)

    def told(w, reason):
        return [each["message"] for each in w.client.list("events") if each["reason"] == reason]

    async def scenario(w):
        await w.start(nodes=0)
        for number in range(4):
            w.node(f"node-{number}", **{"gpusched.io/rack": f"r{number}"})
        daemon = w.daemon()
        await w.until(lambda: told(w, "TooManyDomains"))
        (message,) = told(w, "TooManyDomains")
        assert "level rack has more than 2 domains: 2 nodes beyond" in message
        assert metric(daemon, 'gpusched_topology_nodes{state="outside"}') == 2
        for number in range(3):
            w.group(f"g{number}", minMember=1, topology={"required": "rack"})
            w.pod(f"g{number}", labels={"gpusched.io/pod-group": f"g{number}"})
        await w.until(lambda: len(w.bound()) == 2)
        assert {pod["spec"]["nodeName"] for pod in w.bound()} == {"node-0", "node-1"}
        assert len(told(w, "TooManyDomains")) == 1
        for number in (2, 3):
            w.client.delete("nodes", None, f"node-{number}")
        await w.until(lambda: told(w, "DomainsCount"))

    play(scenario)


def test_a_level_keeps_no_more_domains_than_its_bound():
    """Given a label of its own on each of 100,010 nodes, 100,000 domains are kept, by name."""
    first = entities.node("n", labels={"rack": "x"})
    many = [
        attrs.evolve(first, name=f"n{number:06}", labels={"rack": f"{number:06}"})
        for number in range(100_010)
    ]
    wide = Topology(
        name="t", uid=UID("t"), resource_version=ResourceVersion("1"), levels=(("rack", "rack"),)
    )
    (level,) = domain.topology_levels(many, [wide])
    assert len(level.names) == 100_000
    assert level.beyond == 10
    assert level.domain[-11:].tolist() == [99_999, *[-1] * 10]
