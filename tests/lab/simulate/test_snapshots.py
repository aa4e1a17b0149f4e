"""A recorded cluster holds nothing secret, and all that a decision reads."""

from __future__ import annotations

import gzip
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpusched.api.foreign import kinds
from gpusched.api.serializer.codecs import CODECS
from gpusched.base.clock import SystemClock
from gpusched.base.errors import Denied, Gone
from gpusched.cache.cache import Cache
from gpusched.cli.main import main
from gpusched.config.model import DEFAULT
from gpusched.devcluster.cluster import ClusterOptions, DevCluster, start
from gpusched.io.client.api_client import ApiClient, ApiResponse
from gpusched.io.recordings.pseudonyms import Pseudonyms
from gpusched.io.recordings.recorded_kinds import RECORDED
from gpusched.io.recordings.snapshot_file import SnapshotFile, read_snapshot, write_snapshot
from gpusched.io.recordings.snapshot_reader import ClusterRecording, take_snapshot
from gpusched.io.watch.discovery import foreign_codec
from gpusched.io.watch.informers import KINDS, make_event_handlers
from gpusched.lab.recordings.restore import restore_snapshot as restored
from gpusched.lab.virtual_time.cluster_run import ClusterRun, SimulationOptions, simulate_cluster
from gpusched.pluginhost.guard import PluginGuard
from gpusched.pluginhost.registry import load_policy
from gpusched.session.decide import decide
from gpusched.session.state.session_cache import SessionCache

Obj = dict[str, Any]
WORD = "pl4nted"
OURS = "scheduling.gpusched.io/v1alpha1"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
RECORDED_LISTS = Path(__file__).parents[2] / "api" / "recorded"


def file_of(recording: ClusterRecording) -> bytes:
    out = BytesIO()
    write_snapshot(out, recording.header, recording.lines)
    return out.getvalue()


async def taken(cluster: DevCluster, folder: Path, **how: Any) -> ClusterRecording:
    config = folder / "kubeconfig"
    config.write_text(cluster.kubeconfig_text)
    config.chmod(0o600)
    api = await ApiClient.connect(str(config), clock=SystemClock())
    try:
        return await take_snapshot(api, now=0.0, **how)
    finally:
        await api.close()


def reread(recording: ClusterRecording, folder: Path) -> SnapshotFile:
    file = folder / "cluster.snapshot"
    file.write_bytes(file_of(recording))
    return read_snapshot(file)


# -- secrets -----------------------------------------------------------------------------------
def secretive_pod_spec() -> Obj:
    """A spec with a word in every place where secrets lie."""
    secret = {"secretKeyRef": {"name": WORD, "key": WORD}}
    container = {
        "image": f"registry/{WORD}",
        "command": [WORD],
        "args": ["--token", WORD],
        "env": [{"name": "A", "value": WORD}, {"name": WORD, "valueFrom": secret}],
        "envFrom": [{"secretRef": {"name": WORD}}, {"configMapRef": {"name": WORD}}],
        "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1"}},
        "volumeMounts": [{"name": f"v-{WORD}", "mountPath": f"/{WORD}"}],
        "lifecycle": {"preStop": {"exec": {"command": [WORD]}}},
        "livenessProbe": {"httpGet": {"path": f"/{WORD}", "port": 80}},
        "workingDir": f"/{WORD}",
        "ports": [{"containerPort": 80, "name": WORD}],
    }
    return {
        "schedulerName": "gpusched",
        "restartPolicy": "Never",
        "serviceAccountName": WORD,
        "imagePullSecrets": [{"name": WORD}],
        "hostname": WORD,
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": [WORD]}],
        "containers": [{"name": "c", **container}],
        "initContainers": [{"name": "i", "restartPolicy": "Always", **container}],
        "volumes": [
            {"name": f"v-{WORD}", "secret": {"secretName": WORD}},
            {"name": "config", "configMap": {"name": WORD}},
            {
                "name": "token",
                "projected": {"sources": [{"serviceAccountToken": {"path": WORD}}]},
            },
            {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}},
        ],
    }


def plant(cluster: DevCluster) -> None:
    client = cluster.client
    notes = {LAST_APPLIED: WORD, "example.com/token": WORD, "vault.hashicorp.com/agent": WORD}

    def put(resource: str, api_version: str, kind: str, name: str, **rest: Any) -> None:
        cluster_scoped = resource.partition(".")[0] in {
            "namespaces",
            "nodes",
            "storageclasses",
            "queues",
        }
        meta: Obj = {"name": name, "annotations": {**notes, "gpusched.io/min-member": "2"}}
        if not cluster_scoped:
            meta["namespace"] = "team"
        client.create(resource, {"apiVersion": api_version, "kind": kind, "metadata": meta, **rest})

    put("namespaces", "v1", "Namespace", "team")
    put("secrets", "v1", "Secret", f"s-{WORD}", stringData={"password": WORD})
    put("configmaps", "v1", "ConfigMap", f"c-{WORD}", data={"password": WORD})
    put(
        "storageclasses.storage.k8s.io", "storage.k8s.io/v1", "StorageClass", "fast",
        provisioner="disk.example.com", parameters={"secret-name": WORD}, mountOptions=[WORD],
    )  # fmt: skip
    put("serviceaccounts", "v1", "ServiceAccount", WORD)
    put(
        "persistentvolumeclaims", "v1", "PersistentVolumeClaim", "disk",
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
              "dataSource": {"kind": "PersistentVolumeClaim", "name": WORD}},
    )  # fmt: skip
    put("nodes", "v1", "Node", "n1", spec={"providerID": f"aws://{WORD}"}, status={
        "capacity": {"nvidia.com/gpu": "8", "cpu": "8", "pods": "10"},
        "allocatable": {"nvidia.com/gpu": "8", "cpu": "8", "pods": "10"},
        "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
        "nodeInfo": {"machineID": WORD},
        "images": [{"names": [WORD], "sizeBytes": 5}],
        "conditions": [{"type": "Ready", "status": "True", "message": WORD}],
    })  # fmt: skip
    put("pods", "v1", "Pod", "p", spec=secretive_pod_spec())
    put(
        "jobs.batch", "batch/v1", "Job", "j",
        spec={"suspend": True, "completions": 2, "parallelism": 2, "completionMode": "Indexed",
              "template": {"metadata": {"annotations": notes}, "spec": secretive_pod_spec()}},
    )  # fmt: skip
    put("podgroups.scheduling.gpusched.io", OURS, "PodGroup", "g", spec={"minMember": 2})
    put("queues.scheduling.gpusched.io", OURS, "Queue", "q", spec={"weight": 2})
    client.patch(
        "pods", "team", "p",
        {"status": {"message": WORD, "podIP": "10.9.9.9", "containerStatuses": [
            {"name": "c", "image": WORD, "imageID": WORD, "ready": False, "restartCount": 0,
             "state": {"waiting": {"reason": "x", "message": WORD}}}],
            "conditions": [{"type": "Ready", "status": "False", "message": WORD}]}},
        patch_type="merge", subresource="status",
    )  # fmt: skip


@pytest.fixture
async def cluster():
    made = await start(ClusterOptions(stages=False, controllers=False))
    yield made
    await made.close()


async def test_no_secret_is_recorded(cluster: DevCluster, tmp_path: Path) -> None:
    """A word in env, commands, tokens, volumes, annotations and messages is nowhere in the file."""
    plant(cluster)
    assert WORD in json.dumps(cluster.client.list("pods"))
    recording = await taken(cluster, tmp_path)
    body = file_of(recording).decode()
    assert WORD not in body
    assert not any(word in body for word in ("managedFields", "last-applied", "10.9.9.9", "env"))
    read = reread(recording, tmp_path)
    (pod,) = read.objects["pods"]
    assert pod["metadata"]["annotations"] == {"gpusched.io/min-member": "2"}
    assert pod["spec"]["containers"] == [
        {
            "name": "c",
            "image": "recorded",
            "ports": [],
            "resources": {
                "limits": {"nvidia.com/gpu": "1", "cpu": "1"},
                "requests": {"nvidia.com/gpu": "1", "cpu": "1"},
            },
        }
    ]
    assert pod["spec"]["volumes"] == [
        {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
    ]
    (job,) = read.objects["jobs.batch"]
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == "recorded"
    absent = {each.resource for each in read.missing}
    assert "jobsets.jobset.x-k8s.io" in absent
    assert not absent & set(read.objects)


async def test_pseudonyms_hide_names_and_keep_what_hangs_together(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """The same key gives the same file, another key another; pods still name their claim."""
    plant(cluster)
    one, same, other = [
        file_of(await taken(cluster, tmp_path, pseudonyms=Pseudonyms(key))).partition(b"\n")[2]
        for key in (b"k" * 16, b"k" * 16, b"z" * 16)
    ]
    assert one == same != other
    assert b"team" not in one
    recording = await taken(cluster, tmp_path, pseudonyms=Pseudonyms(b"k" * 16))
    read = reread(recording, tmp_path)
    assert read.anonymized
    (pod,), (claim,) = read.objects["pods"], read.objects["persistentvolumeclaims"]
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {
        "claimName": claim["metadata"]["name"]
    }
    names = {each["metadata"]["name"] for each in read.objects["namespaces"]}
    assert pod["metadata"]["namespace"] in names
    assert {"default", "kube-system"} < names


# -- what a decision reads -----------------------------------------------------------------------
@pytest.mark.parametrize("resource", [path.name for path in RECORDED_LISTS.glob("*-list.json")])
def test_the_daemon_reads_of_a_record_what_it_reads_of_the_cluster(resource: str) -> None:
    """Objects of a real API server make the same entities before and after."""
    body = json.loads((RECORDED_LISTS / resource).read_bytes())
    plural = resource.removesuffix("-list.json")
    (kind,) = (
        each
        for each in RECORDED
        if each.resource.partition(".")[0] == plural and (KINDS.get(plural) == each.places[0][1])
    )
    codec: Any = CODECS[plural]
    whole = codec.decode_page(msgspec.json.encode(body)).items
    kept = {**body, "items": [kind.shape(item) for item in body["items"]]}
    trimmed = codec.decode_page(msgspec.json.encode(kept)).items
    assert len(whole) > 0
    for before, after in zip(whole, trimmed, strict=True):
        assert comparable(before) == comparable(after)


def comparable(entity: Any) -> Any:
    """Classes of pods and selectors by what is in them, raw texts of specs by nothing."""
    return repr(entity)


def test_every_kind_that_is_read_is_recorded() -> None:
    """A kind that the daemon learns to read is in the next snapshot."""
    paths = {path for each in RECORDED for _, path in each.places}
    assert set(KINDS.values()) < paths
    for kind in kinds.ALL:
        assert kind.name in {each.resource for each in RECORDED}
        assert foreign_codec(kind).wire_type is not None


def cache_of(objects: dict[str, tuple[Obj, ...]]) -> Cache:
    cache = Cache(DEFAULT.scheduler_names)

    def believe(kind: str, rejected: Any) -> None:
        raise AssertionError(f"{kind}: {rejected}")

    into = make_event_handlers(cache, believe)
    for each in RECORDED:
        plural = each.resource.partition(".")[0]
        if KINDS.get(plural) != each.places[0][1]:
            continue
        page = {
            "kind": f"{each.kind}List", "metadata": {"resourceVersion": "1"},
            "items": list(objects.get(each.resource, ())),
        }  # fmt: skip
        codec: Any = CODECS[plural]
        into[plural].replace(codec.decode_page(msgspec.json.encode(page)).items)
    return cache


def view_of(cache: Cache, now: float) -> Obj:
    """What a decision sees, and what it decides."""
    snapshot = cache.take_snapshot(now)
    policy = load_policy(DEFAULT)
    decision = decide(
        snapshot, policy, guard=PluginGuard(SystemClock()), session_cache=SessionCache(),
        placement=DEFAULT.placement,
    )  # fmt: skip
    return {
        "used": snapshot.nodes.used.tolist(),
        "free": snapshot.nodes.free_slots,
        "gangs": [
            (gang.key, gang.uid, gang.queue, gang.pending, gang.ready_members)
            for gang in snapshot.gangs
        ],
        "plan": decision.plan,
    }


def test_a_restored_cluster_gives_the_same_decision(tmp_path: Path) -> None:
    """Recorded in the middle of gangs that run and wait, restored into an empty cluster."""

    async def record(world: ClusterRun) -> tuple[bytes, dict[str, tuple[Obj, ...]], float]:
        crowd(world)
        await world.until(lambda: bound(world) == 2, within_s=120)
        await world.clock.sleep(10)
        recording = await taken(world.cluster, tmp_path)
        whole = {
            each.resource: tuple(world.client.list(each.resource))
            for each in RECORDED
            if each.resource in recording.lines
        }
        return file_of(recording), whole, world.clock.now()

    made = simulate_cluster(record, options=SimulationOptions(seed=3))
    body, whole, now = made.value
    file = tmp_path / "c.snapshot.gz"
    file.write_bytes(gzip.compress(body))
    snapshot = read_snapshot(file)
    before = view_of(cache_of(whole), now)
    assert len(before["plan"].gangs) > 0
    assert abs(snapshot.taken_at - now) <= 1

    async def restore(world: ClusterRun) -> dict[str, tuple[Obj, ...]]:
        before = msgspec.json.encode(snapshot.objects)
        assert restored(world.cluster, snapshot) == ()
        assert msgspec.json.encode(snapshot.objects) == before
        return {resource: tuple(world.client.list(resource)) for resource in snapshot.objects}

    again = simulate_cluster(
        restore, options=SimulationOptions(seed=3, daemons=0, stages=False)
    ).value
    after = view_of(cache_of(again), now)
    assert after == before


def test_pseudonyms_change_no_decision_but_for_ties(tmp_path: Path) -> None:
    """Queues, groups, Jobs and their pods still belong together."""

    async def record(world: ClusterRun) -> tuple[list[bytes], float]:
        crowd(world)
        group(world)
        await world.clock.sleep(10)
        key = Pseudonyms(b"k" * 16)
        files = [
            file_of(await taken(world.cluster, tmp_path)),
            file_of(await taken(world.cluster, tmp_path, pseudonyms=key)),
        ]
        return files, world.clock.now()

    options = SimulationOptions(seed=3, daemons=0)
    (plain, hidden), now = simulate_cluster(record, options=options).value
    assert b"team-llm" in plain
    assert b"llm" not in hidden
    assert b"waits" not in hidden
    found = []
    for name, body in (("plain", plain), ("hidden", hidden)):
        file = tmp_path / name
        file.write_bytes(body)
        view = view_of(cache_of(dict(read_snapshot(file).objects)), now)
        plan = view["plan"]
        found.append(
            (
                sorted((key.kind, pending, ready) for key, _, _, pending, ready in view["gangs"]),
                sorted(len(bind.binds) for bind in plan.binds),
                sorted((status.phase, status.scheduled.reason) for status in plan.gangs),
                sorted(dict(queue.allocated.items).items() for queue in plan.queues),
            )
        )
    assert found[0] == found[1]
    assert len(found[0][0]) == 3
    assert found[0][1]


def group(world: ClusterRun) -> None:
    """A PodGroup of two in a queue of its own, with a pod of each of its Jobs."""
    world.client.create(
        "queues.scheduling.gpusched.io",
        {"apiVersion": OURS, "kind": "Queue", "metadata": {"name": "team-llm"}, "spec": {}},
    )
    world.client.create(
        "podgroups.scheduling.gpusched.io",
        {
            "apiVersion": OURS, "kind": "PodGroup",
            "metadata": {"name": "llm-7", "namespace": "default"},
            "spec": {"queue": "team-llm", "minMember": 2},
        },
    )  # fmt: skip
    for number in range(2):
        world.client.create(
            "pods",
            {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": f"llm-7-{number}", "namespace": "default",
                    "labels": {"gpusched.io/pod-group": "llm-7", "app": "llm"},
                },
                "spec": {
                    "schedulerName": "gpusched",
                    "containers": [
                        {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
                    ],
                },
            },
        )  # fmt: skip


def crowd(world: ClusterRun) -> None:
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    for name in ("n1", "n2"):
        world.client.create("nodes", {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "status": {"capacity": amounts, "allocatable": amounts},
        })  # fmt: skip
    for job, gpus in (("runs", "8"), ("waits", "4")):
        spec = {
            "schedulerName": "gpusched", "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}],
        }  # fmt: skip
        world.client.create("jobs.batch", {
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": job, "namespace": "default"},
            "spec": {"completions": 2, "parallelism": 2, "completionMode": "Indexed",
                     "template": {"metadata": {"annotations": {"gpusched.io/run-for": "1h"}}, "spec": spec}},
        })  # fmt: skip


def bound(world: ClusterRun) -> int:
    return sum(1 for pod in world.client.list("pods") if pod["spec"].get("nodeName"))


async def test_kinds_that_an_embedded_cluster_lacks_are_named(cluster: DevCluster) -> None:
    """What is left out is told to who restores."""
    item = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}}
    snapshot = SnapshotFile(
        path="f", taken_at=0.0, server="", recorder="", objects={"jobsets.jobset.x-k8s.io": (item,)}
    )
    assert restored(cluster, snapshot) == ("jobsets.jobset.x-k8s.io",)


# -- what is missing -----------------------------------------------------------------------------
class StrictServer:
    """Answers lists: of pods in two pages, nodes are forbidden, the rest is not served."""

    host = "https://strict"

    def __init__(self, *, gone: int = 0) -> None:
        self.gone = gone

    async def server_version(self) -> str:
        """As a real one."""
        return "v1.36.1"

    async def request(
        self, _method: str, path: str, *, query: Obj, timeout_s: float
    ) -> ApiResponse:
        """One page."""
        assert timeout_s > 0
        status, body = 404, {"kind": "Status", "message": "not here"}
        if path == "/api/v1/nodes":
            status, body = 403, {"kind": "Status", "message": "nodes is forbidden"}
        elif path == "/api/v1/pods":
            status, body = self._pods(query)
        headers = {"Date": "Thu, 01 Jan 2026 00:00:00 GMT"}
        return ApiResponse(status, headers, json.dumps(body).encode())

    def _pods(self, query: Obj) -> tuple[int, Obj]:
        if "continue" in query and self.gone:
            self.gone -= 1
            return 410, {"kind": "Status", "message": "too old"}
        name, more = ("a", "") if "continue" in query else ("b", "next")
        pod = {"metadata": {"name": name, "namespace": "n"}, "spec": {}}
        return 200, {"metadata": {"continue": more}, "items": [pod]}


async def test_kinds_that_may_not_be_read_are_told() -> None:
    """The rest is recorded; who lacks rights finds the kind and the server's words in the file."""
    recording = await take_snapshot(StrictServer(gone=2), now=7.0)  # type: ignore[arg-type]
    assert [json.loads(line)["metadata"]["name"] for line in recording.lines["pods"]] == ["a", "b"]
    assert recording.header.taken_at == 1_767_225_600.0
    missing = {each.resource: each for each in recording.header.missing}
    assert missing["nodes"].why == "could not read nodes: nodes is forbidden"
    assert missing["nodes"].served
    assert not missing["jobs.batch"].served
    assert set(missing) | {"pods"} == {each.resource for each in RECORDED}


class ClosedServer(StrictServer):
    """Whoever asks may read nothing."""

    async def request(self, _method: str, path: str, **_how: Any) -> ApiResponse:
        """Forbidden."""
        body = {"kind": "Status", "message": f"{path} is forbidden"}
        return ApiResponse(403, {}, json.dumps(body).encode())


async def test_nothing_that_may_be_read_is_a_fault() -> None:
    """An empty file would look like an empty cluster."""
    with pytest.raises(Denied, match="nothing of this cluster may be read: could not read"):
        await take_snapshot(ClosedServer(), now=7.0)  # type: ignore[arg-type]


async def test_a_list_that_is_forgotten_again_and_again_is_given_up() -> None:
    """The server's answer is the fault."""
    with pytest.raises(Gone):
        await take_snapshot(StrictServer(gone=3), now=7.0)  # type: ignore[arg-type]


# -- the command -------------------------------------------------------------------------------
def test_an_unreachable_cluster_is_one_sentence(tmp_path: Path, capsys: Any) -> None:
    """Exit status 69, and no file is left behind."""
    config = tmp_path / "kubeconfig"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: u, user: {}}]\n"
    )
    config.chmod(0o600)
    file = tmp_path / "out" / "c.snapshot"
    file.parent.mkdir()
    assert main(["snapshot", "--kubeconfig", str(config), "--output-file", str(file)]) == 69
    assert capsys.readouterr().err.count("\n") == 1
    assert list(file.parent.iterdir()) == []


def test_a_file_that_cannot_be_written_is_told_first(tmp_path: Path, capsys: Any) -> None:
    """Wrong usage: no cluster is asked."""
    file = tmp_path / "nowhere" / "c.snapshot"
    assert main(["snapshot", "--output-file", str(file)]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_a_terminal_gets_no_snapshot(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Wrong usage that says where to write instead."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["snapshot"]) == 2
    assert "--output-file FILE, or redirect stdout with > FILE" in capsys.readouterr().err


def test_a_short_key_is_refused(tmp_path: Path, capsys: Any) -> None:
    """Names could be guessed."""
    key = tmp_path / "key"
    key.write_bytes(b"short")
    assert (
        main(["snapshot", "--anonymize-key", str(key), "--output-file", str(tmp_path / "f")]) == 2
    )
    assert "holds 5 bytes" in capsys.readouterr().err
