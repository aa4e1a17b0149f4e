"""Before and after a run on a real cluster: what must be there, what must not, what is removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from gpusched.base import installed_files
from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError, GpuschedError
from gpusched.config.model import Config
from gpusched.devcluster.controllers.bootstrap.initial_objects import read_documents
from gpusched.lab.scenario.expansion.moments import unroll_timeline
from gpusched.lab.scenario.expansion.object_names import Key, namespace_of
from gpusched.lab.scenario.model.scenario import (
    ApplyAct,
    Count,
    DeleteAct,
    EventSeen,
    EvictAct,
    ObjectIs,
    PatchAct,
    ScaleAct,
    Scenario,
)
from gpusched.lab.scenario.target_cluster.interface import Obj, WriteRefused
from gpusched.lab.scenario.target_cluster.real import ALWAYS, RUN_LABEL, RealTarget

Tell = Callable[[str], None]
DAEMON: Final = "gpusched-scenario-"
"""What the identities of daemons begin with that a run starts."""
OWN_KINDS: Final = ("Queue", "PodGroup", "Topology")
_CRDS: Final = "manifests/crds"
_STAGE: Final = "gpusched-pod-start"
_LATE: Final = 2.0
"""A lease counts as held for so many times its duration after it was renewed last."""
_SERVED_S: Final = 30.0
_GONE_S: Final = 90.0
_LOOK_S: Final = 1.0
_LAST: Final = ("Node", "Queue", "Topology", "PriorityClass", "Namespace")
"""Removed after everything else, in this order: pods leave before their nodes."""
_FORCED_S: Final = 40.0
KWOK: Final = (
    "start KWOK as kwok-scenarios/README.md says: kwok "
    "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake "
    "--config kwok-scenarios/stages/pod-lifecycle.yaml "
    "--config kwok-scenarios/stages/node-lifecycle.yaml"
)


@frozen(kw_only=True)
class PreparedCluster:
    """What was found.

    Attributes:
        led: holder of the Lease of a daemon that leads already; empty for none.
    """

    led: str = ""


async def prepare_cluster(ground: RealTarget, scenario: Scenario, *, tell: Tell) -> PreparedCluster:
    """Make a cluster ready for a scenario, or refuse; nothing of the scenario is made yet.

    Args:
        ground: opened here.
        scenario: what will be played.
        tell: given sentences about what was done or may be missing.

    Raises:
        ConfigError: something of the same name is there, or what is needed is not.
        ClusterUnreachable: the cluster does not answer.
    """
    wanted = kinds_of(scenario)
    await ground.kinds.read()
    await _definitions(ground, tell)
    unknown = sorted(kind for kind in wanted if ground.kinds.find(kind) is None)
    if unknown:
        raise ConfigError(
            f"{scenario.place}: the cluster serves no kind {unknown[0]}; install what defines it"
        )
    _check_gangs(ground, scenario)
    try:
        await ground.open(wanted)
    except WriteRefused as error:
        raise ConfigError(f"{scenario.place}: {error}") from error
    _refuse_taken(ground, scenario)
    _keep_to_own_nodes(ground, scenario)
    await _look_for_kwok(ground, scenario, tell)
    led = await lease_holder(ground, scenario.config)
    if led.startswith(DAEMON):
        led = await _other_run(ground, scenario, led, tell)
    if led and (scenario.config_said or scenario.daemons > 1):
        what = "its own configuration" if scenario.config_said else "several daemons"
        raise ConfigError(
            f"{scenario.place}: needs {what}, and {led} leads in this cluster already: "
            "scale that one to 0 for the run"
        )
    if led:
        tell(f"{led} leads in this cluster: it is what is tried, and no other daemon is started")
    return PreparedCluster(led=led)


def _check_gangs(ground: RealTarget, scenario: Scenario) -> None:
    """Refuse a scenario of gangs that the cluster does not serve: no scenario can open its gates."""
    version = scenario.gangs.group_version
    if scenario.gangs.served and not ground.kinds.serves(version):
        raise ConfigError(
            f"{scenario.place}: needs Kubernetes' own gangs, and the cluster does not serve "
            f"{version}; start its servers with the feature gates of docs/devcluster.md"
        )


def kinds_of(scenario: Scenario) -> set[str]:
    """Kinds that a scenario makes or speaks of, beside those that every run follows."""
    found = {kind for kind, _, _ in objects_of_scenario(scenario)}
    for entry in scenario.timeline:
        if isinstance(entry.act, DeleteAct | PatchAct | ScaleAct | EvictAct):
            found.add(entry.act.target.kind)
    for each in scenario.expect:
        subject = each.subject
        if isinstance(subject, ObjectIs | Count):
            found.add(subject.target.kind)
        elif isinstance(subject, EventSeen) and subject.on is not None:
            found.add(subject.on.kind)
    return found - set(ALWAYS)


def objects_of_scenario(scenario: Scenario) -> Iterator[Key]:
    """Kind, namespace and name of everything that the files make, some more than once."""
    acts = (moment.act for moment in unroll_timeline(scenario))
    later = (each for act in acts if isinstance(act, ApplyAct) for each in act.manifests)
    for manifest in (*scenario.before, *later):
        name = manifest.obj["metadata"].get("name")
        if name:
            yield (manifest.obj["kind"], namespace_of(manifest.obj), str(name))


# -- what must be there ------------------------------------------------------------------------
async def _definitions(ground: RealTarget, tell: Tell) -> None:
    """The project's kinds; they are installed where they are missing, and stay."""
    if all(ground.kinds.find(kind) for kind in OWN_KINDS):
        return
    for path in sorted(installed_files.path(_CRDS).glob("*.yaml")):
        await ground.install(_document(path))
    until = ground.clock.monotonic() + _SERVED_S
    while not all(ground.kinds.find(kind) for kind in OWN_KINDS):
        if ground.clock.monotonic() > until:
            raise ConfigError(f"the kinds of {_CRDS} were applied and are still not served")
        await ground.clock.sleep(_LOOK_S)
        await ground.kinds.read()
    tell(f"installed the kinds of {_CRDS}, which stay in the cluster")


def _document(path: Path) -> Obj:
    (found,) = read_documents(path)
    document: Obj = found
    return document


async def _look_for_kwok(ground: RealTarget, scenario: Scenario, tell: Tell) -> None:
    """Whether our Stages are among the cluster's; KWOK may have been given them as files, too."""
    if scenario.stages:
        names = ", ".join(map(str, scenario.stages))
        tell(f"the scenario has Stages of its own, which KWOK must have been given: {names}")
        return
    fake = any(
        "kwok.x-k8s.io/node" in (each.obj["metadata"].get("annotations") or {})
        for each in scenario.before
        if each.obj["kind"] == "Node"
    )
    if not fake:
        return
    stages = ground.kinds.find("Stage")
    if stages is not None and await ground.read(stages.path("", _STAGE)) is not None:
        return
    tell(f"the Stages of gpusched are not in this cluster; unless KWOK has them as files, {KWOK}")


async def lease_holder(ground: RealTarget, config: Config) -> str:
    """Identity of the leader by the Lease of the configuration; empty without one."""
    election = config.leader_election
    path = (
        f"/apis/coordination.k8s.io/v1/namespaces/{election.lease_namespace}"
        f"/leases/{election.lease_name}"
    )
    lease = await ground.read(path)
    spec = (lease or {}).get("spec") or {}
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder or not renewed:
        return ""
    age = ground.clock.now() - datetime.fromisoformat(renewed).timestamp()
    duration = spec.get("leaseDurationSeconds") or election.lease_duration_s
    return str(holder) if age < _LATE * duration else ""


async def _other_run(ground: RealTarget, scenario: Scenario, led: str, tell: Tell) -> str:
    """Wait for the Lease of another run's daemon, which may be dead; the holder afterwards.

    Raises:
        ConfigError: it lives.
    """
    tell(f"{led}, the daemon of another run, holds the Lease; it is waited for while that is valid")
    election = scenario.config.leader_election
    until = ground.clock.monotonic() + (_LATE + 1) * election.lease_duration_s
    while led.startswith(DAEMON):
        if ground.clock.monotonic() > until:
            raise ConfigError(
                f"{scenario.place}: another run is being played on this cluster, by {led}: "
                "begin this one after its end"
            )
        await ground.clock.sleep(_LOOK_S)
        led = await lease_holder(ground, scenario.config)
    return led


# -- what must not be there --------------------------------------------------------------------
def _refuse_taken(ground: RealTarget, scenario: Scenario) -> None:
    """Nothing is changed that the run did not make."""
    there = {
        (kind, namespace_of({"kind": kind, **obj}), obj["metadata"]["name"]): obj
        for kind in {*kinds_of(scenario), *ALWAYS}
        if ground.kinds.find(kind)
        for obj in ground.objects_of_any_owner(kind)
    }
    taken = sorted({key for key in objects_of_scenario(scenario) if key in there})
    if not taken:
        return
    runs: dict[str, list[Key]] = {}
    for key in taken:
        labels = there[key]["metadata"].get("labels") or {}
        runs.setdefault(labels.get(RUN_LABEL, ""), []).append(key)
    others = runs.pop("", [])
    sentences = [
        f"{scenario.place}: {_first_of(keys)} left from run {run}, or in use by it if it goes on; "
        f"{_removal({kind for kind, _, _ in there}, run)} removes all of it"
        for run, keys in runs.items()
    ]
    sentences += [
        f"{scenario.place}: {_object_text(key)} is in the cluster already, and no scenario made it: "
        "rename one of the two"
        for key in others[:10]
    ]
    raise ConfigError(*sentences)


def _object_text(key: Key) -> str:
    kind, namespace, name = key
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def _first_of(keys: Sequence[Key]) -> str:
    more = len(keys) - 1
    return (
        f"{_object_text(keys[0])} is"
        if not more
        else f"{_object_text(keys[0])} and {more} more are"
    )


def _removal(kinds: Iterable[str], run: str) -> str:
    """The command that removes what a run made; nodes and what jobs live by go last."""
    first = sorted({*kinds, "Pod"} - {*_LAST, "Event"})
    named = ",".join(each.lower() for each in [*first, *_LAST])
    return f"kubectl delete {named} --all-namespaces -l {RUN_LABEL}={run}"


def _keep_to_own_nodes(ground: RealTarget, scenario: Scenario) -> None:
    """Pods of a scenario with nodes of its own go nowhere else: real ones would run them."""
    own = any(each.obj["kind"] == "Node" for each in scenario.before)
    others = [
        node
        for node in ground.objects_of_any_owner("Node")
        if not (node.get("spec") or {}).get("unschedulable")
    ]
    if own and others:
        ground.selector = {RUN_LABEL: ground.run}


# -- afterwards --------------------------------------------------------------------------------
async def remove_run_objects(ground: RealTarget, *, tell: Tell) -> None:
    """Remove everything that the run made; tell what could not be removed and how to do it."""
    kinds = [kind for kind in sorted(ground.made) if kind not in _LAST]
    try:
        ground.check()
        for kind in [*kinds, "ReplicaSet", "Pod"]:
            await _remove(ground, kind)
        await _gone(ground, ("Pod",))
        for kind in _LAST:
            if kind in ground.made:
                await _remove(ground, kind)
        await _gone(ground, [kind for kind in _LAST if kind in ground.made])
    except GpuschedError as error:
        tell(f"what the run made is not all removed: {error}; later: {_removal(kinds, ground.run)}")


def _mine(ground: RealTarget, kind: str) -> Iterable[Obj]:
    if not ground.follows(kind):
        return []
    return [
        obj
        for obj in ground.objects_of_any_owner(kind)
        if (obj["metadata"].get("labels") or {}).get(RUN_LABEL) == ground.run
    ]


async def _remove(ground: RealTarget, kind: str, *, grace_s: int | None = None) -> None:
    for obj in list(_mine(ground, kind)):
        metadata = obj["metadata"]
        await ground.delete(kind, metadata.get("namespace", ""), metadata["name"], grace_s=grace_s)


async def _gone(ground: RealTarget, kinds: Iterable[str]) -> None:
    """Wait until nothing of the run is left; pods that no kubelet ends are forced."""
    began = ground.clock.monotonic()
    forced = False
    while left := [obj for kind in kinds for obj in _mine(ground, kind)]:
        ground.check()
        silent = ground.clock.monotonic() - began
        if silent > _FORCED_S and not forced:
            forced = True
            await _remove(ground, "Pod", grace_s=0)
        if silent > _GONE_S:
            first = left[0]["metadata"]["name"]
            raise ConfigError(f"{len(left)} objects are still there, the first is {first}")
        await ground.clock.sleep(_LOOK_S)
