"""The page of real processes: a gang starts, the daemon is killed and another one comes back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from typing import Self, TextIO

import pytest
import yaml
from playwright.sync_api import expect

pytestmark = [pytest.mark.long, pytest.mark.early]
PROGRAM = "import sys; from gpusched.cli.main import main; sys.exit(main(sys.argv[1:]))"
TRIES = 300
PATIENCE_MS = 120_000
"""The lease of the one that was killed has to end, on a machine that does other things as well."""


def node(name, gpus):
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod(name, gpus):
    """A gang of one pod, which runs for an hour."""
    limits = {"nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"gpusched.io/run-for": "1h"},
        },
        "spec": {
            "schedulerName": "gpusched",
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
        },
    }


class Processes:
    """A cluster of one node with eight GPUs, and daemons that are begun one after the other."""

    def __init__(self, folder) -> None:
        self._folder = folder
        self._begun: list[subprocess.Popen[str]] = []
        self._view = "127.0.0.1:0"

    def __enter__(self) -> Self:
        objects = [node("n", 8), pod("first", 8), pod("second", 8), pod("third", 8)]
        gangs, kubeconfig = self._folder / "gangs.yaml", self._folder / "kubeconfig"
        gangs.write_text(yaml.safe_dump_all(objects))
        cluster = self._begin(
            "devcluster", "--port", "0", "--kubeconfig", str(kubeconfig), "--apply", str(gangs)
        )
        assert cluster.stdout is not None
        assert cluster.stdout.readline()
        known = yaml.safe_load(kubeconfig.read_text())
        self.server = known["clusters"][0]["cluster"]["server"]
        self.token = known["users"][0]["user"]["token"]
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._begun):
            process.kill()
            process.communicate(timeout=30)

    def daemon(self) -> tuple[subprocess.Popen[str], str]:
        """A daemon, and where its page is: the next one's is there too."""
        log = self._folder / f"log-{len(self._begun)}"
        with log.open("w") as stream:  # a full pipe would hold it up
            process = self._begin(
                "run", "--kubeconfig", str(self._folder / "kubeconfig"), "--listen", "none",
                "--view", self._view, "--state-file", "none", "--log-format", "json",
                stderr=stream,
            )  # fmt: skip
        for _ in range(TRIES):
            told = [line for line in log.read_text().splitlines() if "view is served" in line]
            if told:
                url = json.loads(told[0])["at"]
                self._view = url.removeprefix("http://")
                return process, url
            time.sleep(0.2)
        raise AssertionError(log.read_text())

    def delete_pod(self, name: str) -> None:
        """As its owner does."""
        path = f"{self.server}/api/v1/namespaces/default/pods/{name}"
        headers = {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(path, headers=headers, method="DELETE")
        urllib.request.urlopen(request).close()

    def _begin(self, *words: str, stderr: int | TextIO = subprocess.PIPE) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip
        self._begun.append(process)
        return process


def test_the_page_follows_a_daemon_through_its_end(page, tmp_path):
    """Given three gangs for one node: the page shows who starts, that the daemon is lost, and the next one."""
    page.set_default_timeout(PATIENCE_MS)
    soon = {"timeout": PATIENCE_MS}
    with Processes(tmp_path) as them:
        daemon, url = them.daemon()
        page.goto(url)
        page.get_by_label("Token").fill(them.token)
        page.keyboard.press("Enter")
        expect(page.locator(".figures")).to_contain_text("8 of 8 GPUs held", **soon)
        wait = page.locator(".figures .warn b")
        expect(wait).to_have_text("2", **soon)

        # When the first ends, then the second starts, and the page says so by itself.
        page.keyboard.press("5")
        rows = page.locator("#decisions .rows")
        expect(rows).to_contain_text("first starts", **soon)
        them.delete_pod("first")
        expect(rows).to_contain_text("second starts", **soon)
        page.keyboard.press("1")
        expect(wait).to_have_text("1", **soon)
        expect(page.locator(".figures")).to_contain_text("8 of 8 GPUs held", **soon)

        # When the daemon is killed, then the page says so and keeps what it knew.
        daemon.kill()
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("Connection lost.", **soon)
        expect(page.locator(".figures")).to_contain_text("8 of 8 GPUs held", **soon)

        # When another one leads, then the page goes on by itself: with the same token, from what is there.
        them.daemon()
        expect(page.locator("body[data-phase=live]")).to_be_attached(**soon)
        expect(alert).to_be_empty(**soon)
        page.goto(f"{url}/#/gang/default/Pod/second")
        expect(page.locator(".standing")).to_contain_text("Running", **soon)
        page.goto(f"{url}/#/waiting")
        expect(page.locator("#gangs .rows")).to_contain_text("third", **soon)
        page.goto(f"{url}/#/queues")
        expect(page.get_by_text("A point each minute since")).to_be_visible(**soon)
