"""Scenarios on a cluster that is spoken to over its API alone, here an embedded one in virtual time."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest

from gpusched.base.errors import ClusterUnreachable, ConfigError
from gpusched.cli import main as cli
from gpusched.io.client.api_client import ApiClient
from gpusched.lab.scenario.model.scenario import Scenario
from gpusched.lab.scenario.play.on_embedded import play_embedded
from gpusched.lab.scenario.play.on_real import RealOptions, play_on, play_real
from gpusched.lab.scenario.play.run import ScenarioRun
from gpusched.lab.scenario.target_cluster.interface import WriteRefused
from gpusched.lab.scenario.target_cluster.real import RUN_LABEL, RealTarget
from gpusched.lab.virtual_time.client_sessions import sessions_to
from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster
from tests.lab.scenario.texts import scenario, whole

T = TypeVar("T")
GANGS = """
nodes: [{name: gpu, count: 2, gpus: 8}]
queues: [{name: a, deserved: 16}]
timeline:
- submit: {name: train, pods: 2, gpus: 8, runFor: 1m, namespace: team, queue: a}
- {at: 10s, submit: {name: next, kind: PodGroup, pods: 2, gpus: 8, runFor: 30s, queue: a}}
- {at: 20s, submit: {name: serve, kind: Deployment, pods: 2, gpus: 1, queue: a}}
- {at: 30s, cordon: gpu-0}
- {at: 40s, uncordon: gpu-0}
ends: 2m30s
expect:
- {job: train, namespace: team, is: running, by: 20s}
- {job: next, is: waiting, at: 40s}
- {job: next, is: started, by: 1m30s}
- {job: train, namespace: team, is: complete}
- {count: {kind: Pod, namespace: "*"}, atLeast: 2, at: 20s}
"""


def on_cluster(story: Callable[[ClusterRun, RealOptions], Awaitable[T]], *, daemons: int = 0) -> T:
    """Run something beside a cluster, with the way to it as a kubeconfig."""

    async def within(world: ClusterRun) -> T:
        with tempfile.TemporaryDirectory() as folder:
            kubeconfig = Path(folder) / "kubeconfig"
            kubeconfig.write_text(world.cluster.kubeconfig_text)
            kubeconfig.chmod(0o600)
            options = RealOptions(
                kubeconfig=str(kubeconfig),
                run="r1",
                clock=world.clock,
                inline=True,
                opened=sessions_to(world.cluster.in_process),
            )
            return await story(world, options)

    return simulate_cluster(within, options=SimulationOptions(daemons=daemons, limit_s=7200)).value


def played(
    found: Scenario, notes: list[str], *, daemons: int = 0, before: Any = None
) -> tuple[ScenarioRun, Any]:
    """Play a scenario on a cluster; what is left there afterwards, too."""

    async def story(world: ClusterRun, options: RealOptions) -> tuple[ScenarioRun, Any]:
        if before is not None:
            await before(world)
        run = await play_on(found, options, note=notes.append)
        left = {
            resource: [each["metadata"]["name"] for each in world.client.list(resource)]
            for resource in ("nodes", "pods", "jobs.batch", "deployments.apps", "namespaces",
                             "podgroups.scheduling.gpusched.io", "queues.scheduling.gpusched.io")
        }  # fmt: skip
        return run, left

    return on_cluster(story, daemons=daemons)


def test_the_same_files_give_the_same_verdicts(tmp_path: Path) -> None:
    """As on the embedded ground: jobs, waits and expectations; nothing is left afterwards."""
    found = scenario(tmp_path, GANGS)
    notes: list[str] = []
    run, left = played(found, notes)
    assert run.ok, (run.verdicts, run.record and run.record.broken, run.troubles)
    assert run.record is not None
    embedded = play_embedded(found).record
    assert embedded is not None
    assert [job.key for job in run.record.jobs] == [job.key for job in embedded.jobs]
    for here, there in zip(run.record.jobs, embedded.jobs, strict=True):
        assert here.started == pytest.approx(there.started, abs=2), here.key
        assert (here.end, here.size, here.queue) == (there.end, there.size, there.queue)
    assert left.pop("namespaces") == [
        "default",
        "gpusched-system",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]
    assert not any(left.values()), left
    assert notes == []


NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "real", "labels": {"kubernetes.io/hostname": "real"}},
    "status": {"capacity": {"cpu": "64", "memory": "1Ti", "pods": "99", "nvidia.com/gpu": "64"}},
}
SMALL = """
nodes: [{name: gpu, gpus: 8}]
timeline:
- submit: {name: train, gpus: 8, runFor: 30s}
- {at: 5s, submit: {name: next, gpus: 8, runFor: 30s}}
ends: 2m30s
expect:
- {job: train, is: running, by: 20s}
- {job: next, is: waiting, at: 20s}
- {job: next, is: complete}
- {count: {kind: Node}, equals: 1}
"""


def test_what_others_have_is_neither_used_nor_seen_nor_touched(tmp_path: Path) -> None:
    """Pods keep to the scenario's nodes although others have room; others' objects stay."""

    async def before(world: ClusterRun) -> None:
        world.client.create("nodes", NODE)
        await world.clock.sleep(5)

    notes: list[str] = []
    run, left = played(scenario(tmp_path, SMALL), notes, before=before)
    assert run.ok, run.verdicts
    assert run.record is not None
    assert [node.name for node in run.record.nodes] == ["gpu-0"]
    assert {pod.node for pod in run.record.pods} == {"gpu-0"}
    assert left["nodes"] == ["real"]
    assert left["jobs.batch"] == []


def test_names_that_others_have_are_refused(tmp_path: Path) -> None:
    """Before anything is made; what an earlier run left says how to remove it."""

    async def before(world: ClusterRun) -> None:
        world.client.create("nodes", {**NODE, "metadata": {"name": "gpu-0"}})
        job = {"metadata": {"name": "train", "labels": {RUN_LABEL: "r0"}}, "spec": POD}
        world.client.create(
            "jobs.batch", {**job, "apiVersion": "batch/v1", "kind": "Job"}, "default"
        )

    with pytest.raises(ConfigError) as refused:
        played(scenario(tmp_path, SMALL), [], before=before)
    job, node = refused.value.problems
    assert "Job default/train is left from run r0" in job
    assert "kubectl delete job,pod,node,queue" in job
    assert f"--all-namespaces -l {RUN_LABEL}=r0 removes all of it" in job
    assert "Node gpu-0 is in the cluster already, and no scenario made it" in node


POD = {
    "template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}
    }
}  # fmt: skip


def test_a_daemon_that_leads_is_the_one_that_is_tried(tmp_path: Path) -> None:
    """No other is started; a scenario that needs its own configuration is refused."""

    async def before(world: ClusterRun) -> None:
        await world.clock.sleep(20)

    notes: list[str] = []
    run, _ = played(scenario(tmp_path, SMALL), notes, daemons=1, before=before)
    assert run.ok, run.verdicts
    assert run.record is not None
    assert run.record.counters["daemons"] == 0
    assert "leads in this cluster: it is what is tried" in notes[0]
    own = scenario(tmp_path, SMALL + "config: {cycle: {maxPeriod: 5s}}")
    with pytest.raises(ConfigError, match=r"needs its own configuration, and .* leads"):
        played(own, [], daemons=1, before=before)


def test_one_run_after_another_has_a_daemon_of_its_own(tmp_path: Path) -> None:
    """The first gives the Lease back: the second neither takes it for a leader's nor waits."""
    found = scenario(tmp_path, SMALL)
    notes: list[str] = []

    async def story(world: ClusterRun, options: RealOptions) -> list[ScenarioRun]:
        both = [attrs.evolve(options, run=each) for each in ("r1", "r2")]
        return [await play_on(found, each, note=notes.append) for each in both]

    first, second = on_cluster(story)
    assert first.ok, first.verdicts
    assert second.ok, second.verdicts
    assert second.record is not None
    assert second.record.counters["daemons"] == 1
    assert notes == []


def hold(world: ClusterRun, **spec: Any) -> None:
    """Make the Lease of another run's daemon, renewed just now."""
    renewed = datetime.fromtimestamp(world.clock.now(), UTC).isoformat(timespec="microseconds")
    held = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "gpusched"},
        "spec": {
            "holderIdentity": "gpusched-scenario-0_dead",
            "leaseDurationSeconds": 15,
            "renewTime": renewed.replace("+00:00", "Z"),
            **spec,
        },
    }
    place = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpusched-system"}}
    world.client.create("namespaces", place)
    world.client.create("leases.coordination.k8s.io", held, "gpusched-system")


def test_the_lease_of_a_run_that_was_killed_is_waited_for(tmp_path: Path) -> None:
    """Nobody renews it: it ends, and a daemon is started."""

    async def before(world: ClusterRun) -> None:
        hold(world)

    notes: list[str] = []
    run, _ = played(scenario(tmp_path, SMALL), notes, before=before)
    assert run.ok, run.verdicts
    assert run.record is not None
    assert run.record.counters["daemons"] == 1
    assert "the daemon of another run, holds the Lease" in notes[0]


def test_a_run_that_goes_on_is_not_disturbed_by_another(tmp_path: Path) -> None:
    """Its Lease stays valid: the second run is refused before anything is made."""

    async def before(world: ClusterRun) -> None:
        hold(world, leaseDurationSeconds=3600)

    with pytest.raises(ConfigError, match=r"another run is being played .* gpusched-scenario-0_"):
        played(scenario(tmp_path, SMALL), [], before=before)


def test_a_server_that_stays_away_ends_the_run_with_what_was_seen(tmp_path: Path) -> None:
    """A restart is waited out; a minute without an answer is the end, results are kept."""
    found = scenario(tmp_path, SMALL)

    def falling(down_s: float) -> tuple[ScenarioRun, list[str]]:
        notes: list[str] = []
        going: list[asyncio.Task[None]] = []

        async def before(world: ClusterRun) -> None:
            async def fall() -> None:
                await world.clock.sleep(25)
                await world.cluster.restarts.restart("cut", down_s=down_s)

            going.append(asyncio.create_task(fall()))

        run, _ = played(found, notes, before=before)
        return run, notes

    run, notes = falling(10)
    assert run.ok, (
        [each.seen for each in run.verdicts],
        run.troubles,
        run.fault,
        run.record and run.record.broken,
    )
    assert notes == []
    run, notes = falling(300)
    assert run.lost
    assert not run.ok
    assert run.record is not None
    assert "the API server http" in run.record.unfinished
    assert [job.key for job in run.record.jobs] == ["default/train", "default/next"]
    assert [each.ok for each in run.verdicts].count(True) >= 2
    assert f"-l {RUN_LABEL}=r1" in notes[0]


def test_an_act_is_done_as_on_the_embedded_ground(tmp_path: Path) -> None:
    """Budgets refuse, missing things are deleted, what the server refuses is told in its words."""

    async def story(world: ClusterRun, options: RealOptions) -> None:
        api = await ApiClient.connect(options.kubeconfig, clock=world.clock, opened=options.opened)
        ground = RealTarget(api, world.clock, run="r1")
        try:
            await ground.open(["PodDisruptionBudget"])
            await _acts(world, ground)
        finally:
            await ground.close()
            await api.close()

    on_cluster(story)


async def _acts(world: ClusterRun, ground: RealTarget) -> None:
    head = {"apiVersion": "v1", "kind": "ConfigMap"}
    made = await ground.apply({**head, "metadata": {"name": "a"}, "data": {"x": "1"}})
    assert made["metadata"]["labels"] == {RUN_LABEL: "r1"}
    named = await ground.apply({**head, "metadata": {"generateName": "b-"}})
    assert named["metadata"]["name"].startswith("b-")
    with pytest.raises(WriteRefused, match="the cluster serves no kind Gadget"):
        await ground.apply({"apiVersion": "x.y/v1", "kind": "Gadget", "metadata": {"name": "a"}})
    with pytest.raises(WriteRefused, match=r"ConfigMap default/B: .*Invalid value"):
        await ground.apply({**head, "metadata": {"name": "B"}})
    with pytest.raises(WriteRefused, match="field not declared in schema"):
        await ground.apply({**head, "metadata": {"name": "a"}, "date": {}})
    with pytest.raises(WriteRefused, match="not followed"):
        ground.list("ConfigMap")
    await ground.delete("ConfigMap", "default", "a")
    await ground.delete("ConfigMap", "default", "a")
    assert await ground.evict("default", "nobody")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}}
    await ground.apply({**pod, "spec": POD["template"]["spec"]})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "p"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
    }
    await ground.apply(budget)
    await ground.patch(
        "Pod", "default", "p", {"status": {"phase": "Running", "conditions": [READY]}}, status=True
    )
    await world.clock.sleep(5)
    assert [each["metadata"]["name"] for each in ground.list("Pod")] == ["p"]
    assert not await ground.evict("default", "p")
    await ground.delete("PodDisruptionBudget", "default", "p")
    await world.clock.sleep(5)
    assert await ground.evict("default", "p")


READY = {"type": "Ready", "status": "True"}


def test_stages_of_a_scenario_are_for_kwok_to_play(tmp_path: Path) -> None:
    """They are not applied to the cluster: a note names their files."""
    (tmp_path / "stages.yaml").write_text("")
    notes: list[str] = []
    run, _ = played(scenario(tmp_path, "stages: [stages.yaml]\nends: 5s"), notes)
    assert run.ok
    assert "Stages of its own, which KWOK must have been given" in notes[0]
    assert notes[0].endswith("stages.yaml")


def test_what_needs_the_embedded_cluster_is_skipped(tmp_path: Path) -> None:
    """With the reason, and without asking for a cluster."""
    found = scenario(tmp_path, "timeline:\n- restart: {what: leader}")
    run = play_real(found, "/nowhere")
    assert "needs the embedded cluster" in run.skipped


def test_no_cluster_at_all(tmp_path: Path) -> None:
    """Is told at once, not after a minute."""
    (tmp_path / "kubeconfig").write_text("{}")
    with pytest.raises((ConfigError, ClusterUnreachable)):
        play_real(scenario(tmp_path, SMALL), str(tmp_path / "kubeconfig"))


def test_the_command_plays_what_a_real_cluster_can(tmp_path: Path, capsys: Any) -> None:
    """Without a cluster exit status 69 or 78 and a sentence; what needs the embedded one is skipped."""
    (tmp_path / "told.yaml").write_text(whole("timeline:\n- restart: {what: leader}"))
    nowhere = kubeconfig(tmp_path, "http://127.0.0.1:1")
    arguments = ["scenario", "run", str(tmp_path / "told.yaml"), "--kubeconfig", nowhere]
    assert cli.main(arguments) == 0
    assert "needs the embedded cluster" in capsys.readouterr().out
    (tmp_path / "told.yaml").write_text(whole(SMALL))
    assert cli.main(arguments) == 69
    assert "cannot connect to the API server http://127.0.0.1:1" in capsys.readouterr().out


def kubeconfig(folder: Path, server: str) -> str:
    """The way to a server."""
    file = folder / "kubeconfig"
    file.write_text(
        f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
    )
    file.chmod(0o600)
    return str(file)
