"""LimitRanges of a namespace: what submitted pods get by them, and what is refused."""

from __future__ import annotations

import asyncio
import random
from copy import deepcopy

import pytest

from gpusched.advice.start_answer import StartKind
from gpusched.advice.submission.manifests import SubmittedObject
from gpusched.advice.submission.namespace_limits import limit_faults, with_limit_defaults
from gpusched.base.errors import Denied
from gpusched.cli.inspect.ask import ask_daemon
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver.admission.limit_ranger import apply_pod_defaults, check_limits
from gpusched.devcluster.registry.policy.limit_ranges import LimitRangeStrategy
from tests.advice.clusters import GPU, node, queue, trial_of
from tests.advice.submission.manifests import ask, job, manifest, only_gang, template

AMOUNTS = {"cpu": ["500m", "1", "2", "4"], "memory": ["1Gi", "2Gi", "4Gi"], GPU: ["1", "2", "8"]}


def limit_range(*limits, name="small", **metadata):
    """A LimitRange of the namespace that is asked about."""
    return manifest("LimitRange", "v1", {"limits": list(limits)}, name=name, **metadata)


def cluster():
    """One node of eight GPUs."""
    return trial_of(queue("a"), node("n0"))


@pytest.mark.parametrize("pods", [job(1), job(1, suspend=True)])
def test_what_is_outside_a_bound_never_starts(pods):
    """Given a maximum of four GPUs, then a Job of eight is refused by its name, suspended or not."""
    small = limit_range({"type": "Container", "max": {GPU: "4"}})
    answer = ask(cluster(), pods, small)
    assert not answer.starts_sometime
    (refused,) = answer.refused
    assert refused.message == (
        f"LimitRange small: maximum {GPU} usage per Container is 4, but limit is 8: "
        "its pods are never made"
    )
    assert ask(cluster(), job(1, 4), small).starts_sometime


def test_a_range_of_another_namespace_does_not_count():
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
    other = limit_range({"type": "Pod", "max": {GPU: "4"}}, namespace="other")
    assert only_gang(ask(cluster(), space, job(1), other)).start.kind is StartKind.NOW


def test_what_containers_leave_out_is_as_the_namespace_gives_it():
    """Given a default of 90 processors, then two pods do not fit a node of 96, which they did without."""
    default = limit_range({"type": "Container", "default": {"cpu": "90"}})
    assert only_gang(ask(cluster(), job(2, 4))).starting == 2
    assert only_gang(ask(cluster(), job(2, 4), default)).starting == 0
    own = template(4)
    own["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    assert only_gang(ask(cluster(), job(2, template_=own), default)).starting == 2


@pytest.mark.parametrize(
    "junk",
    [
        {"limits": "x"}, {"limits": [7]}, {"limits": [{"type": "Container", "max": [1]}]},
        {"limits": [{"type": "Container", "min": {GPU: {}}}]},
        {"limits": [{"type": "Pod", "max": {GPU: "much"}}]}, None,
    ],
)  # fmt: skip
def test_ranges_that_mean_nothing_stop_nothing(junk):
    assert ask(cluster(), job(1), manifest("LimitRange", "v1", junk)).starts_sometime


def drawn(draw, count):
    """Amounts of some resources."""
    return {name: draw.choice(AMOUNTS[name]) for name in draw.sample(sorted(AMOUNTS), count)}


@pytest.mark.parametrize("seed", range(80))
def test_it_is_as_the_embedded_api_server_has_it(seed):
    """Given any range and a pod of one container, then the same amounts, and the same refusals."""
    draw = random.Random(seed)
    limit = {
        "type": draw.choice(["Container", "Container", "Pod"]),
        **{
            part: drawn(draw, draw.randint(1, 2))
            for part in draw.sample(["min", "max", "maxLimitRequestRatio"], draw.randint(0, 2))
        },
    }
    if limit["type"] == "Container":
        for part in draw.sample(["default", "defaultRequest"], draw.randint(0, 2)):
            limit[part] = drawn(draw, 1)
    limits, requests = drawn(draw, draw.randint(0, 3)), drawn(draw, draw.randint(0, 2))
    container = {
        "name": "c", "resources": {"limits": limits, "requests": {**limits, **requests}},
    }  # fmt: skip
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    stored = limit_range(limit)
    ours = with_limit_defaults(deepcopy(pod), [deepcopy(stored)])
    LimitRangeStrategy.default(None, stored)
    theirs = deepcopy(pod)
    apply_pod_defaults(theirs, stored["spec"]["limits"])
    assert resources_of(ours) == resources_of(theirs)
    faults = [each.removeprefix("LimitRange small: ") for each in limit_faults(ours, [stored])]
    assert "".join(dict.fromkeys(faults)).replace(" ", "") == refusal(theirs, stored)


def resources_of(pod):
    """Amounts of its container that are there."""
    found = pod["spec"]["containers"][0]["resources"]
    return {part: found.get(part) or {} for part in ("limits", "requests")}


def refusal(pod, stored):
    """What the embedded API server says of a pod, its reasons one after the other, without blanks."""

    class Pods:
        storage = plural = "pods"
        group = ""

    try:
        check_limits(Pods, pod, stored["spec"]["limits"])
    except StatusError as error:
        said = str(error).partition("is forbidden: ")[2]
        listed = said.removeprefix("[").removesuffix("]") if said.startswith("[") else said
        for head in ("minimum ", "maximum ", *(f"{name} max limit" for name in AMOUNTS)):
            listed = listed.replace(f", {head}", head)
        return listed.replace(" ", "")
    return ""


def test_they_are_read_with_the_rights_of_who_asks(monkeypatch):
    """Given two namespaces of which one may not be read, then the other's range, and a sentence."""

    async def listed(_api, path, *, what):
        if "secret" in path:
            raise Denied(f"{what}: you may not list limitranges", status=403)
        return [{"metadata": {"name": "small", "namespace": "team"}, "spec": {}}]

    monkeypatch.setattr(ask_daemon, "list_objects", listed)
    documents = [
        SubmittedObject(job(1), "a.yaml:1"),
        SubmittedObject(manifest("Job", "batch/v1", {}, namespace="secret"), "a.yaml:9"),
    ]
    found, notes = asyncio.run(ask_daemon.limit_ranges(None, documents, "team"))
    assert [each.title for each in found] == ["LimitRange small"]
    (note,) = notes
    assert note == (
        "LimitRanges of namespace secret are not looked at: LimitRanges of namespace secret: "
        "you may not list limitranges"
    )
