"""``get`` as kubectl prints: by labels, as YAML, as names, without titles, and as it changes."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
import yaml

from gpusched.base.errors import UsageError
from gpusched.cli.inspect.listing import changes
from gpusched.cli.inspect.listing.label_selector import parse_label_selector
from gpusched.cli.inspect.listing.printed_listing import Listing
from gpusched.cli.main import main
from tests.cli.canned_objects import API
from tests.cli.test_get_jobs import OF_TEAM, filled, member

__all__ = ["filled"]

PODS = "/api/v1/namespaces/default/pods"
LABELS = {"team": "a", "tier": "test"}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True), ("team=a", True), ("team==a", True), ("team = b", False), ("team!=a", False),
        ("team in (b, a)", True), ("team notin (b,a)", False), ("tier", True), ("!tier", False),
        ("!old,team=a", True), ("team=a,tier in (live)", False), ("absent!=x", True),
    ],
)  # fmt: skip
def test_selectors_mean_what_kubectl_means(selector, matches):
    """Given labels, then each form of a selector says whether they are meant."""
    assert parse_label_selector(selector).matches(LABELS) is matches


@pytest.mark.parametrize("selector", ["=a", "a=b=c", "a in b", "a in (b", ",", "a,,b", "ä=b"])
def test_a_selector_that_is_none(selector):
    """Given what is no selector, then one sentence with the forms."""
    with pytest.raises(UsageError, match="is no label selector such as key=value"):
        parse_label_selector(selector)


def test_jobs_by_the_labels_of_their_objects_and_pods(filled, capsys):
    """Given labels on a group, and on the pods of another gang, then a selector finds both."""
    groups = filled.objects[f"{API}/{OF_TEAM}/podgroups"]
    groups[0]["metadata"]["labels"] = {"team": "a"}
    filled.objects[f"/api/v1/{OF_TEAM}/pods"].append(member("lone", labels={"team": "a"}))
    assert main(["get", "jobs", "-l", "team=a", "-o", "name"]) == 0
    assert capsys.readouterr().out == "pod/lone\npodgroup/runs\n"
    assert main(["get", "jobs", "-l", "team=b"]) == 0
    assert "with labels team=b" in capsys.readouterr().out


def test_queues_and_nodes_by_labels_are_asked_of_the_server(filled, capsys):
    """Given a selector for what has a server, then the server selects."""
    filled.objects |= {"/api/v1/nodes": [], "/api/v1/pods": []}
    for kind in ("queues", "nodes", "podgroups"):
        assert main(["get", kind, "-l", "team=a", "--no-headers"]) == 0
    selecting = {path for path, query in filled.asked if query.get("labelSelector") == "team=a"}
    assert selecting == {f"{API}/queues", "/api/v1/nodes", f"{API}/{OF_TEAM}/podgroups"}
    assert capsys.readouterr().out == ""


def test_yaml_says_what_json_says(filled, capsys):
    """Given ``-o yaml``, then it is the same document, and no foreign text reaches the terminal raw."""
    filled.objects[f"/api/v1/{OF_TEAM}/pods"].append(member("hostile", said="a\x1b[31mb\u202ec"))
    assert main(["get", "jobs", "-o", "json"]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert main(["get", "jobs", "-o", "yaml"]) == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text) == as_json
    assert text.isascii()
    assert "\x1b" not in text


def test_a_table_without_titles(filled, capsys):
    """Given ``--no-headers``, then lines of gangs alone."""
    assert main(["get", "jobs", "--no-headers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["alone", "runs", "waits"]


def test_names_are_those_that_kubectl_takes(filled, capsys):
    """Given ``-o name``, then resource and name."""
    assert main(["get", "podgroups", "-o", "name"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "podgroup.scheduling.gpusched.io/runs", "podgroup.scheduling.gpusched.io/waits",
    ]  # fmt: skip


def test_a_watch_prints_what_changes_and_nothing_else(live, capsys, monkeypatch):
    """Given ``-w``, when a pod is made and another goes, then a line each, and no line twice."""
    monkeypatch.setattr(changes, "_PAUSE_S", 0.0)
    first, second = (member(name, namespace="default") for name in ("first", "second"))
    for each in (first, second):
        del each["metadata"]["uid"], each["metadata"]["resourceVersion"], each["status"]
        each["spec"]["containers"][0]["image"] = "busybox"
    live.send("POST", PODS, first)
    listed: list[str] = []
    done = threading.Event()
    real = changes.print_changes

    def print_changes(before, after, output, *, widths):
        real(before, after, output, widths=widths)
        listed.append(capsys.readouterr().out)
        seen = "".join(listed)
        if "second" not in seen:
            return
        if "Gone" in seen:
            done.set()
            raise KeyboardInterrupt
        if not deleted:
            deleted.append(live.send("DELETE", f"{PODS}/first?gracePeriodSeconds=0"))

    deleted: list[object] = []
    printed = changes.print_listing

    def print_listing(*args, **options):
        printed(*args, **options)
        live.send("POST", PODS, second)

    monkeypatch.setattr(changes, "print_changes", print_changes)
    monkeypatch.setattr(changes, "print_listing", print_listing)
    assert main(["get", "jobs", "-w"]) == 130
    assert done.is_set()
    header, one, *more = "".join(listed).splitlines()
    assert header.split()[0] == "NAME"
    assert one.split()[0] == "first"
    assert [(line.split()[0], line.split()[4]) for line in more] == [
        ("second", "Waiting"), ("first", "Gone"),
    ]  # fmt: skip


def test_a_change_that_the_view_tells_late_is_printed(monkeypatch, capsys):
    """Given a listing that lags behind the event of a change, then it is made once more."""
    monkeypatch.setattr(changes, "_PAUSE_S", 0.0)
    monkeypatch.setattr(changes, "_SETTLE_S", 0.0)
    states = iter(["Waiting", "Waiting", "Running"])

    async def one_event(_api, _path, changed, begun):
        begun.set()
        changed.set()

    async def read(_api):
        state = next(states)
        item = {"metadata": {"namespace": "a", "name": "x"}}
        return Listing(
            items=(item,), names=("job/x",), header=("NAME", "STATE"), lines=(("x", state),), empty="",
        )  # fmt: skip

    real = changes.print_changes

    def print_changes(before, after, output, *, widths):
        real(before, after, output, widths=widths)
        if after.lines[0][1] == "Running":
            raise KeyboardInterrupt

    monkeypatch.setattr(changes, "print_changes", print_changes)
    monkeypatch.setattr(changes, "_tell_changes", one_event)
    following = changes.follow(None, read, ["/jobs"], output=None, header=True)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(following)
    assert capsys.readouterr().out.split() == ["NAME", "STATE", "x", "Waiting", "x", "Running"]


def test_what_has_no_labels_is_refused(filled, capsys):
    """Given ``-l`` for pools of devices, then one sentence and the exit status of a wrong call."""
    assert main(["get", "devices", "-l", "a=b"]) == 2
    assert "are not for devices" in capsys.readouterr().err
