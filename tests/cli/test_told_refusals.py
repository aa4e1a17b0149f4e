"""What commands that read say where there is no cluster, no right or no use of a kubeconfig."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from gpusched.cli.main import main
from tests.cli.canned_objects import (
    API,
)


def test_no_cluster_is_status_69(cluster, capsys, tmp_path):
    """No kubeconfig, or nobody listening: one sentence."""
    assert main(["get", "gq", "--kubeconfig", str(tmp_path / "absent")]) == 69
    assert "there is no kubeconfig file" in capsys.readouterr().err
    assert main(["get", "gq", "--kubeconfig", str(tmp_path)]) == 69
    assert "that is a folder, name a file in it" in capsys.readouterr().err


COMMANDS_ONE_BY_ONE = """
import json, sys
from gpusched.cli.main import main
for words in json.loads(sys.argv[1]):
    print(main(words), file=sys.stderr)
"""


def test_a_kubeconfig_that_is_no_use_is_one_sentence(tmp_path):
    """Nothing of the client library stands beside it, whatever is wrong with the file."""
    (tmp_path / "empty").write_text("")
    files = ["absent", ".", "absent:gone", "two\nlines", "", "empty"]
    commands = [
        [*command, "--kubeconfig", file]
        for command in (["get", "gq"], ["explain", "podgroup", "a/b"])
        for file in files
    ]
    ran = subprocess.run(
        [sys.executable, "-c", COMMANDS_ONE_BY_ONE, json.dumps(commands)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout == ""
    lines = ran.stderr.splitlines()
    assert len(lines) == 2 * len(commands)
    for line, status in zip(lines[::2], lines[1::2], strict=True):
        assert status in {"69", "78"}
        assert re.match(
            "gpusched: (there is no kubeconfig file|the kubeconfig empty cannot be used)", line
        )


@pytest.mark.parametrize(
    ("command", "path", "role"),
    [
        (["get", "gq"], f"{API}/queues", "gpusched-queue-view (manifests/rbac-users.yaml)"),
        (
            ["get", "gpg", "-A"],
            f"{API}/podgroups",
            "gpusched-view (manifests/rbac-users.yaml)",
        ),
    ],
)
def test_what_may_not_be_read_is_status_77(cluster, capsys, command, path, role):
    """The server answers: the sentence names the role that has the right."""
    cluster.objects[path] = 403
    assert main(command) == 77
    kind = path.rpartition("/")[2]
    assert capsys.readouterr().err == (
        f'gpusched: could not read {kind}: you may not: User "ann" cannot list resource "{kind}" in API '
        f'group "scheduling.gpusched.io"; ClusterRole {role} has this right: bind it to this user, or '
        "ask an administrator to\n"
    )


def test_credentials_that_nobody_knows_are_status_77(cluster, capsys):
    """Not an outage either."""
    cluster.objects[f"{API}/queues"] = 401
    assert main(["get", "gq"]) == 77
    assert "does not accept these credentials" in capsys.readouterr().err
