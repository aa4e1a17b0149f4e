"""Commands that list: the same lines of the daemon's view and of the API's objects, by one way to ask."""

from __future__ import annotations

import json

import pytest

from gpusched.base.errors import GpuschedError
from gpusched.cli.inspect import explain, get
from gpusched.cli.inspect.explaining import explanation, explanation_text
from gpusched.cli.inspect.explaining.gang_objects import gather_objects
from gpusched.cli.inspect.explaining.node_story import render_node
from gpusched.cli.inspect.explaining.queue_story import render_queue
from gpusched.cli.inspect.get import Question
from gpusched.cli.inspect.listing.history_list import read_served_history
from gpusched.cli.inspect.listing.view_source import ViewSource
from gpusched.config.model import DEFAULT
from gpusched.io.client.api_client import ApiClient
from gpusched.io.history.history_query import HistoryQuery
from gpusched.io.serve.view_client import NoView
from gpusched.view.access import ViewAccess
from tests.behaviour.fuzz.foreign_kinds import install, make
from tests.daemon.adapters.test_adapters_owners import JOBSETS, job_set, job_set_pod
from tests.daemon.inputs.test_bad_queues import queue
from tests.daemon.view.followed import leader, serve

FILE_READS = "--file FILE reads the file of gpusched run --history"
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


async def story(w, word, name, source=None):
    """What ``gpusched explain WORD NAME --source SOURCE`` tells."""
    api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    try:
        found = await gather_objects(
            api, namespace="default", name=name, kinds=explain.kinds_of_word(word),
            source=ViewSource(chosen=source, election=DEFAULT.leader_election),
        )  # fmt: skip
    finally:
        await api.close()
    return explanation.explain_gang(found)


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


def test_explain_tells_places_position_and_decisions_of_the_view(play):
    """Given a gang that runs and one that waits for it, then explain has what only the daemon knows of both."""

    async def scenario(w):
        store = await busy_cluster(w)
        runs, waits = (
            await story(w, "podgroup", "runs"),
            await story(w, "pod", w.pods("waits")[0]["metadata"]["name"]),
        )
        (member,) = runs["gangs"][0]["members"]
        assert (member["node"], member["slots"]) == (
            w.bound("runs")[0]["spec"]["nodeName"],
            "0,1,2,3,4,5,6,7",
        )
        (place,) = explanation_text.name_places(runs["gangs"])
        assert place == f"{member['node']}: 1 pod, GPUs 0,1,2,3,4,5,6,7"
        view = store.gangs["default/PodGroup/waits"]
        assert (waits["queuePosition"], waits["name"]) == (1, "waits")
        assert waits["reasons"] == [{"reason": view.reason, "message": view.message}]
        assert [each["message"] for each in waits["decisions"]] == [
            each.message for each in store.story(view.key)
        ]
        # Then: the API's objects say the same, but for decisions.
        of_api = await story(w, "podgroup", "waits", "api")
        same = ("reasons", "queuePosition", "minMember", "needs", "pods")
        assert {key: of_api[key] for key in same} == {key: waits[key] for key in same}
        assert of_api["decisions"] == []

    play(scenario)


def test_pods_of_a_job_that_start_by_themselves_are_told(play):
    """Given a Job whose pods are gangs of their own, then the Job is told by them, by daemon and API alike."""

    async def scenario(w):
        await busy_cluster(w)
        w.job("loose", 2, completions=4, completionMode="NonIndexed")
        await w.until(lambda: len(w.pods()) > 5)
        await w.clock.sleep(5)
        for source in ("daemon", "api"):
            told = await story(w, "job", "loose", source)
            assert told["needs"][0] == "2 pods, each of which starts by itself"
            assert len(told["reasons"]) == 1
            assert {each["gangKind"] for each in told["gangs"]} == {"Pod"}

    play(scenario)


def test_gangs_that_have_no_pods_wait_for_them(play):
    """Given a PodGroup without pods and a Job whose controller rests, then both are listed, by daemon and API alike."""

    async def scenario(w):
        await busy_cluster(w)
        w.group("early", minMember=3)
        w.job("again", 2, gpus=2, backoffLimit=9)
        await w.until(lambda: len(w.running()) == 4)
        titles = ("STATE", "PODS", "MIN", "REASON", "MESSAGE")
        lacking = (
            "Waiting", "0/0", "3", "NotEnoughMembers", "needs 3 pods together; 0 pods can run",
        )  # fmt: skip
        resting = (
            "Waiting", "0/0", "2", "NotEnoughMembers",
            "Job again has no pods: its controller is to make 2 pods",
        )  # fmt: skip

        def pods_of_job():
            return [pod for pod in w.pods() if pod["metadata"]["name"].startswith("again-")]

        for pod in pods_of_job():
            w.client.delete("pods", "default", pod["metadata"]["name"])
        await w.until(lambda: not pods_of_job())
        await w.clock.sleep(1)
        for source in ("daemon", "api"):
            told = columns(await listed(w, "jobs", source), *titles)
            assert (told["early"], told["again"]) == (lacking, resting), source
            (why,) = (await story(w, "job", "again", source))["reasons"]
            assert why["message"] == resting[-1]
        # Then: the line is that of a gang again once there are pods, and gone when the Job is over.
        await w.until(lambda: len(pods_of_job()) == 2)
        await w.clock.sleep(3)
        for source in ("daemon", "api"):
            assert columns(await listed(w, "jobs", source), *titles)["again"][:2] == (
                "Running",
                "2/2",
            )
        w.client.delete("jobs.batch", "default", "again")
        for pod in pods_of_job():
            w.client.delete("pods", "default", pod["metadata"]["name"])
        await w.clock.sleep(1)
        for source in ("daemon", "api"):
            assert "again" not in columns(await listed(w, "jobs", source), *titles)

    play(scenario)


async def cluster_wide(w, read, name, source):
    """What ``gpusched explain queue|node NAME --source SOURCE`` tells."""
    api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    try:
        story, notes = await read(
            api, name, ViewSource(chosen=source, election=DEFAULT.leader_election)
        )
    finally:
        await api.close()
    assert notes == ()
    return story


def test_a_queue_is_explained_with_its_gangs_in_their_order(play):
    """Given queue ``default``, then it tells what it holds and is due, who waits in which place and who runs."""

    async def scenario(w):
        await busy_cluster(w)
        w.client.patch("nodes", None, "node-0", {"spec": {"unschedulable": True}})
        story = await cluster_wide(w, explain.read_queue_story, "default", "daemon")
        lines = render_queue(story, w.clock.now()).splitlines()
        assert lines[:5] == [
            "Queue default: Open",
            "  holds   8 GPUs, requests 24, borrows 0",
            "  due     now 12",
            "  gangs   1 running, 1 admitted, 0 not admitted",
            "  order   Priority, weight 1 under root",
        ]
        waiting, runs = (line.split() for line in (lines[7], lines[10]))
        assert (waiting[1], waiting[9]) == ("waits", "1")
        assert (runs[1], runs[5]) == ("runs", "Running")
        of_api = await cluster_wide(w, explain.read_queue_story, "default", "api")
        assert [each["metadata"] for each in of_api["waiting"]] == [
            each["metadata"] for each in story["waiting"]
        ]
        assert await cluster_wide(w, explain.read_queue_story, "nobody", "daemon") is None

    play(scenario)


def test_a_node_is_explained_with_the_holders_of_its_gpus(play):
    """Given a node with a pod of four GPUs and a taint, then its rows of GPUs, its gangs and the taint are told."""

    async def scenario(w):
        await busy_cluster(w)
        name = w.client.get("pods", "default", "small")["spec"]["nodeName"]
        taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
        w.client.patch("nodes", None, name, {"spec": {"taints": [taint]}})
        await w.clock.sleep(2)
        for source in ("daemon", "api"):
            story = await cluster_wide(w, explain.read_node_story, name, source)
            lines = render_node(story, w.clock.now()).splitlines()
            assert lines[:6] == [
                f"Node {name}: Ready",
                "  gpus    8, 4 free: 4,5,6,7",
                "  free    cpu 96, memory 1Ti",
                "  in      rack r0",
                "  pods    1",
                "  taint   dedicated=x:NoSchedule",
            ]
            assert [line.split() for line in lines[8:10]] == [
                ["0,1,2,3", "0", "0", "default/Pod/small"], ["4,5,6,7", "0", "1"],
            ]  # fmt: skip
            assert lines[-1].split()[1] == "small"

    play(scenario)


def test_stages_of_a_gang_are_told_as_its_gangs(play):
    """Given a JobSet that starts in order, whose stages have names with a slash, then it is told by them."""

    async def scenario(w):
        await busy_cluster(w)
        await install(w, JOBSETS)
        order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
        make(w, JOBSETS, "js", {**job_set(("driver", 1, 1), ("worker", 1, 2)), **order})
        await w.clock.sleep(90)  # the daemon looks for kinds of others every minute
        job_set_pod(w, "driver", 0, 0)
        job_set_pod(w, "worker", 0, 0)
        await w.clock.sleep(5)
        told = {source: await story(w, "jobset", "js", source) for source in ("daemon", "api")}
        names = [[gang["metadata"]["name"] for gang in each["gangs"]] for each in told.values()]
        assert names[0] == names[1]
        assert any("/" in name for name in names[0]), names
        assert told["daemon"]["minMember"] == told["api"]["minMember"]

    play(scenario)


async def refused_history(w):
    """What ``gpusched get history`` ends with, and says."""
    api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
    try:
        await read_served_history(api, DEFAULT.leader_election, HistoryQuery(), None, 10)
    except GpuschedError as error:
        return error.exit_status, str(error)
    finally:
        await api.close()


def test_a_daemon_that_cannot_be_asked_for_a_history_is_not_reached(play):
    """69, as where there is no cluster."""

    async def scenario(w):
        await w.start(nodes=1)
        assert await refused_history(w) == (69, f"no daemon serves a view; {FILE_READS}")

    play(scenario)


def test_a_daemon_that_keeps_no_history_is_not_set_up_for_it(play):
    """78, as it answers, and its configuration is what is to be changed."""

    async def scenario(w):
        await busy_cluster(w)
        status, told = await refused_history(w)
        assert status == 78, told
        assert told.endswith(
            f": this daemon keeps no history: gpusched run --history FILE keeps one; {FILE_READS}"
        )

    play(scenario)
