"""``gpusched bundle``: what is in the file, what is not, and that it goes on."""

from __future__ import annotations

import gzip
import io
import json
import tarfile

import pytest

from gpusched.cli import main as cli
from gpusched.cli.bundle.archive import mask_secrets
from gpusched.io.recordings.snapshot_file import read_snapshot

SYSTEM = "/api/v1/namespaces/gpusched-system"
METRICS = (
    "# HELP gpusched_queue_allocated What a queue holds\n"
    "# TYPE gpusched_queue_allocated gauge\n"
    'gpusched_queue_allocated{queue="payroll",resource="cpu"} 3.0\n'
    'gpusched_bind_total{result="bound"} 2.0\n'
)
TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJl"


@pytest.fixture
def installed(cluster):
    """A cluster with one daemon that was restarted once, a node and a pod with a password."""
    daemon = {
        "metadata": {
            "name": "gpusched-0", "namespace": "gpusched-system",
            "labels": {"app.kubernetes.io/name": "gpusched"},
        },
        "spec": {
            "nodeName": "n1",
            "containers": [
                {
                    "name": "gpusched", "image": "gpusched:0.2.0",
                    "env": [{"name": "DB_PASSWORD", "value": "hunter2"}],
                }
            ],
        },
        "status": {"phase": "Running", "containerStatuses": [{"restartCount": 1}]},
    }  # fmt: skip
    user = {
        "metadata": {"name": "payroll-0", "namespace": "payroll", "uid": "u"},
        "spec": {
            "schedulerName": "gpusched",
            "containers": [
                {"name": "c", "command": ["--password", "hunter2"], "env": [{"value": "hunter2"}]}
            ],
        },
    }
    cluster.objects |= {
        "/version": {"gitVersion": "v1.36.2"},
        "/api/v1/nodes": [{"metadata": {"name": "n1", "uid": "x"}, "status": {}}],
        "/api/v1/pods": [user],
        f"{SYSTEM}/pods": [daemon],
        f"{SYSTEM}/pods/gpusched-0/log": f"leading lease=x\nAuthorization: Bearer {TOKEN}\n",
        f"{SYSTEM}/pods/gpusched-0:8080/proxy/metrics": METRICS,
        f"{SYSTEM}/configmaps/gpusched": {
            "data": {"gpusched.yaml": "tiers: []\nx: {apiToken: hunter2}\n"}
        },
        f"{SYSTEM}/events": [{"reason": "Started", "message": "Started container"}],
        "/apis/coordination.k8s.io/v1/namespaces/gpusched-system/leases/gpusched": {
            "metadata": {"annotations": {"gpusched.io/seal-key": "hunter2"}},
            "spec": {"holderIdentity": "gpusched-0"},
        },
    }
    return cluster


@pytest.fixture
def bundle(tmp_path):
    """Runs the command; the files of the bundle by name, and its exit status."""

    def run(*words: str) -> tuple[dict[str, str], int]:
        file = tmp_path / "bundle.tar.gz"
        status = cli.main(["bundle", "--output-file", str(file), *words])
        with tarfile.open(file) as archive:
            found = {
                member.name.removeprefix("gpusched-bundle/"): archive.extractfile(member).read()
                for member in archive.getmembers()
            }
        assert file.stat().st_mode & 0o077 == 0
        packed = found.get("snapshot.jsonl.gz")
        if packed is not None:
            found["snapshot.jsonl.gz"] = gzip.decompress(packed)
        return {name: body.decode() for name, body in found.items()}, status

    return run


def test_all_that_a_bug_report_needs_is_inside(installed, bundle, capsys, tmp_path):
    """Snapshot, logs of both processes, configuration, metrics, state, versions; each is listed."""
    folder = tmp_path / "decisions"
    folder.mkdir()
    for number in range(2):
        (folder / f"000{number}.decision.gz").write_bytes(b"decided")
    (folder / "other.txt").write_text("not ours")

    found, status = bundle("--decisions", str(folder))

    assert status == 0
    assert set(found) == {
        "CONTENTS.txt", "versions.json", "snapshot.jsonl.gz", "state.json", "events.json",
        "configuration/gpusched.yaml", "metrics/gpusched-0.txt",
        "logs/gpusched-0.txt", "logs/gpusched-0-previous.txt",
        "decisions/0000.decision.gz", "decisions/0001.decision.gz",
    }  # fmt: skip
    assert "payroll-0" in found["snapshot.jsonl.gz"]
    assert "leading lease=x" in found["logs/gpusched-0.txt"]
    assert found["metrics/gpusched-0.txt"] == METRICS
    assert json.loads(found["state.json"])["lease"] == {"holderIdentity": "gpusched-0"}
    for name in set(found) - {"CONTENTS.txt"}:
        assert f"  {name} (" in found["CONTENTS.txt"]
    assert "API server: v1.36.2" in found["CONTENTS.txt"]
    assert "a bundle of 10 files" in capsys.readouterr().err


def test_no_secret_and_no_environment_is_inside(installed, bundle):
    """Of objects only what decides; of texts nothing that looks like a password or a token."""
    found, _ = bundle()
    everything = "".join(found.values())
    assert "hunter2" not in everything
    assert TOKEN not in everything
    assert "apiToken: (left out)" in found["configuration/gpusched.yaml"]
    assert "Bearer (left out)" in found["logs/gpusched-0.txt"]


def test_the_snapshot_of_a_bundle_can_be_played(installed, bundle, tmp_path):
    """It is the file that gpusched simulate takes."""
    found, _ = bundle()
    file = tmp_path / "snapshot.jsonl"
    file.write_text(found["snapshot.jsonl.gz"])
    assert [pod["metadata"]["name"] for pod in read_snapshot(file).objects["pods"]] == ["payroll-0"]


def test_anonymous_bundles_name_nobody(installed, bundle, capsys):
    """Queues have one pseudonym in snapshot and metrics; logs and configuration stay at home."""
    found, _ = bundle("--anonymize")
    everything = "".join(found.values())
    for name in ("payroll", "gpusched-0", "n1"):
        assert name not in everything, name
    assert set(found) == {"CONTENTS.txt", "versions.json", "snapshot.jsonl.gz", "metrics/0.txt"}
    assert 'gpusched_bind_total{result="bound"} 2.0' in found["metrics/0.txt"]
    assert "logs: it names things as users do" in found["CONTENTS.txt"]


def test_errors_in_an_anonymous_bundle_name_nobody(installed, bundle, capsys):
    """The sentence with names is for the terminal alone."""
    installed.objects[f"{SYSTEM}/pods/gpusched-0:8080/proxy/metrics"] = 403
    found, status = bundle("--anonymize")
    assert status == 0
    assert "gpusched-0" not in "".join(found.values())
    assert "metrics/0.txt: it could not be read" in found["CONTENTS.txt"]
    assert "you may not" in capsys.readouterr().err


def test_what_cannot_be_read_is_named_and_the_rest_is_there(installed, bundle, capsys):
    """Logs are refused, the ConfigMap is gone, metrics are no metrics: each has its line."""
    installed.objects[f"{SYSTEM}/pods/gpusched-0/log"] = 403
    del installed.objects[f"{SYSTEM}/configmaps/gpusched"]
    del installed.objects[f"{SYSTEM}/pods/gpusched-0:8080/proxy/metrics"]
    found, status = bundle("--decisions", "/nowhere")
    assert status == 0
    assert {"snapshot.jsonl.gz", "state.json", "versions.json"} <= set(found)
    told = found["CONTENTS.txt"].partition("Not inside:")[2]
    for name in ("logs/gpusched-0.txt", "configuration", "metrics/gpusched-0.txt", "decisions"):
        assert f"  {name}: " in told
    assert "has no ConfigMap gpusched" in told
    assert capsys.readouterr().err.count("not inside: ") == told.count("\n  ")


def test_with_the_rights_of_the_daemon_its_state_is_there(installed, bundle):
    """In its pod events and logs are refused; pods and Lease are not, and cost nothing for it."""
    installed.objects[f"{SYSTEM}/events"] = 403
    installed.objects[f"{SYSTEM}/pods/gpusched-0/log"] = 403
    found, _ = bundle()
    assert json.loads(found["state.json"])["pods"][0]["status"]["phase"] == "Running"
    assert "events.json" not in found
    assert "  events.json: " in found["CONTENTS.txt"].partition("Not inside:")[2]


def test_without_a_cluster_files_are_bundled(bundle, monkeypatch, tmp_path, capsys):
    """The daemon that does not start is the one that is reported: its configuration is there."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1", "kind": "Config", "current-context": "x",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )  # fmt: skip
    config = tmp_path / "odd.yaml"
    config.write_text("tiers: 3\n")
    found, status = bundle("--kubeconfig", str(kubeconfig), "--config", str(config))
    assert status == 0
    assert found["configuration/gpusched.yaml"] == "tiers: 3\n"
    assert set(found) == {"CONTENTS.txt", "versions.json", "configuration/gpusched.yaml"}
    assert "snapshot.jsonl.gz: " in found["CONTENTS.txt"].partition("Not inside:")[2]
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_a_namespace_without_a_daemon_says_so(installed, bundle):
    """And what to do."""
    installed.objects["/api/v1/namespaces/elsewhere/pods"] = []
    found, _ = bundle("-n", "elsewhere")
    assert (
        "there are none in the namespace elsewhere; --namespace names another"
        in (found["CONTENTS.txt"])
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--output-file", "/nowhere/x.tar.gz"), "/nowhere/x.tar.gz cannot be written"),
        (("--namespace", "../x", "--output-file", "x"), "'../x' is no name of a namespace"),
        (
            ("--insecure-skip-tls-verify", "--output-file", "x"),
            "--insecure-skip-tls-verify is refused",
        ),
    ],
)
def test_wrong_usage(installed, capsys, words, sentence):
    """Exit status 2 and one sentence."""
    assert cli.main(["bundle", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_a_bundle_is_not_for_a_terminal(monkeypatch, capsys):
    """It would ruin it."""
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr("sys.stdout", screen)
    assert cli.main(["bundle"]) == 2
    assert "a bundle is not for a terminal" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "password: hunter2", 'DB_PASSWORD="hunter2"', "apiToken=hunter2", '{"client-secret": "hunter2"}',
        "postgres://user:hunter2@host/db", "authorization: bearer hunter2hunter2",
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_masked(text):
    """In every notation that configurations and logs have."""
    assert "hunter2" not in mask_secrets(text)
    assert "(left out)" in mask_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "PodGroup default/tokenizer waits queue=default",
        "no secrets are read",
        "image: a/b@sha256:00",
    ],
)
def test_what_is_no_secret_stays(text):
    """A log without its words would be of no use."""
    assert mask_secrets(text) == text
