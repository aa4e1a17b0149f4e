"""`pip install .` without extras: a daemon that works, and commands that say what they lack.

The environment is empty but for the wheel and what requirements-run.lock names, linked from the
environment of the tests. The cluster is a process of that one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.early

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
NODES = """
apiVersion: v1
kind: Node
metadata: {name: node-%d, labels: {type: kwok}, annotations: {kwok.x-k8s.io/node: fake}}
status:
  allocatable: &all {cpu: "32", memory: 256Gi, pods: "110", nvidia.com/gpu: "8"}
  capacity: *all
"""


def link_pinned(site: Path) -> None:
    """Put every distribution of the image's lock file into an environment."""
    lock = (ROOT / "requirements-run.lock").read_text()
    here = Path(sysconfig.get_path("purelib"))
    pinned = set(re.findall(r"(?m)^([\w.-]+)==", lock))
    for found in metadata.distributions(path=[str(here)]):
        if re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower() in pinned:
            for file in found.files or ():
                top = file.parts[0]
                if top != ".." and not (site / top).exists():
                    (site / top).symlink_to(here / top)


@pytest.fixture(scope="module")
def bare(wheels, tmp_path_factory) -> Path:
    """The command gpusched of an environment with nothing but the daemon."""
    place = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    link_pinned(site)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python")]
    install = ["install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    # Whatever the suite shows by PYTHONPATH would count as installed.
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([*pip, *install, str(wheels["gpusched"])], check=True, env=env)
    return place / "bin" / "gpusched"


def call(command: Path, *words: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of one command, away from any checkout."""
    done = subprocess.run(
        [str(command), *words], capture_output=True, text=True, check=False, cwd=command.parent,
        env={"PATH": os.environ["PATH"]}, timeout=PATIENCE_S,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def kubeconfig(tmp_path) -> Path:
    """Where a running embedded cluster with two nodes and a gang of two is reached."""
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "nodes.yaml").write_text("---".join(NODES % number for number in range(4)))
    gang = (ROOT / "manifests" / "examples" / "gang.yaml").read_text()
    (manifests / "work.yaml").write_text(gang)
    config = tmp_path / "kubeconfig"
    program = Path(sys.executable).with_name("gpusched")
    serve = [program, "devcluster", "--kubeconfig", config, "--apply", manifests]
    process = subprocess.Popen(
        serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
    )
    try:
        assert process.stdout.readline().startswith("ready ")
        yield config
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)
        process.stdout.close()


def test_the_bare_daemon_binds_a_gang(bare, kubeconfig, tmp_path):
    """Given a cluster, when the daemon starts there, then all of a gang's pods are bound."""
    log = tmp_path / "daemon.log"
    with log.open("w") as lines:
        daemon = subprocess.Popen(
            [bare, "run", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0"],
            stdout=lines, stderr=subprocess.STDOUT, cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)},
        )  # fmt: skip
    reach = ("--kubeconfig", str(kubeconfig))
    try:
        groups = []
        for _ in range(PATIENCE_S * 2):
            time.sleep(0.5)
            if daemon.poll() is None and "default/llm starts with" not in log.read_text():
                continue  # asking is a process of its own each time
            status, out, err = call(bare, "get", "podgroups", "-o", "json", *reach)
            assert status == 0, err
            groups = json.loads(out)
            if daemon.poll() is not None or '"Running"' in out:
                break
        assert '"Running"' in json.dumps(groups), log.read_text()
        status, out, err = call(bare, "explain", "podgroup", "default/llm", *reach)
        assert status == 0, err
        assert "llm" in out
    finally:
        daemon.terminate()
        status = daemon.wait(timeout=PATIENCE_S)
    assert status == 0


def test_the_bare_commands_that_need_no_cluster(bare):
    """All versions are said; check-config reads the shipped file below the prefix."""
    status, out, err = call(bare, "version")
    assert (status, err) == (0, "")
    assert "CP-SAT" in out
    shipped = bare.parents[1] / "share" / "gpusched" / "conf" / "gpusched.yaml"
    assert call(bare, "check-config", str(shipped))[0] == 0


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("devcluster", "devcluster"), ("nodes", "devcluster"), ("demo", "devcluster"),
        ("scenario", "lab"), ("chaos", "lab"), ("simulate", "lab"), ("audit", "lab"),
        ("snapshot", "lab"), ("replay", "lab"),
    ],
)  # fmt: skip
def test_a_command_of_an_extra_says_what_to_do(bare, command, extra):
    """One sentence, exit status 78; also for its help."""
    status, out, err = call(bare, command, "--help")
    assert (status, out) == (78, "")
    assert re.fullmatch(
        f"gpusched: the command {command} needs the extra {extra}, which is not installed: "
        rf'run pip install "\.\[{extra}\]" in a checkout of gpusched \S+\n',
        err,
    )


def test_top_without_its_library_says_what_to_do(bare):
    """A command of the daemon's own wheel whose library is an extra: one sentence, exit status 78."""
    status, out, err = call(bare, "top", "--once")
    assert (status, out) == (78, "")
    assert re.fullmatch(
        r"gpusched: the command top needs (rich|textual), which is not installed: "
        r'run pip install "\.\[top\]" in a checkout of gpusched \S+\n',
        err,
    )


def test_help_lists_the_commands_of_extras(bare):
    """What could be installed is seen."""
    status, out, _ = call(bare, "--help")
    assert status == 0
    for command in ("run", "scenario", "demo", "simulate"):
        assert f"\n    {command} " in out
