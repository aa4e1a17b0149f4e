"""Metrics of a played cluster as a Prometheus that scraped it would have them, and that Prometheus.

Texts of ``/metrics`` are written with the virtual times at which they were rendered, made into blocks
by promtool and asked by Prometheus' own engine. Nothing is scraped and no real time passes.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
from prometheus_client.parser import text_string_to_metric_families

PATIENCE_S = 60.0
STEP_S = 15


@attrs.define
class RecordedMetrics:
    """Samples in the order of time, as lines of OpenMetrics."""

    lines: list[str] = attrs.Factory(list)
    names: set[str] = attrs.Factory(set)
    times: list[float] = attrs.Factory(list)
    families: set[str] = attrs.Factory(set)
    """Of metrics that are not deprecated."""

    def scrape(self, text: bytes, at: float, *, instance: str) -> None:
        """The text of one replica at one time."""
        self.times.append(at)
        for family in text_string_to_metric_families(text.decode()):
            if not family.documentation.startswith("Deprecated"):
                counts = "_total" if family.type == "counter" else ""
                self.families.add(f"{family.name}{counts}")
            for sample in family.samples:
                self.add(sample.name, {**sample.labels, "instance": instance}, sample.value, at)

    def add(self, name: str, labels: Mapping[str, str], value: float, at: float) -> None:
        """One sample."""
        self.names.add(name)
        told = ",".join(f"{key}={json.dumps(labels[key])}" for key in sorted(labels))
        self.lines.append(f"{name}{{{told}}} {value} {at:.3f}")

    def add_pods(self, pods: Iterable[dict[str, Any]], at: float) -> None:
        """Pods as the documentation of kube-state-metrics says that it tells them."""
        for pod in pods:
            metadata, status = pod["metadata"], pod.get("status", {})
            who = {
                "namespace": metadata["namespace"], "pod": metadata["name"], "uid": metadata["uid"],
            }  # fmt: skip
            made = _seconds(metadata["creationTimestamp"])
            self.add("kube_pod_created", who, made, at)
            self.add("kube_pod_info", {**who, "node": pod["spec"].get("nodeName", "")}, 1, at)
            for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
                here = status.get("phase", "Pending") == phase
                self.add("kube_pod_status_phase", {**who, "phase": phase}, float(here), at)
            for each in status.get("conditions", ()):
                if each["type"] == "PodScheduled" and each["status"] == "True":
                    placed = _seconds(each["lastTransitionTime"])
                    self.add("kube_pod_status_scheduled_time", who, placed, at)
            for container in pod["spec"]["containers"]:
                for name, amount in container["resources"].get("requests", {}).items():
                    if "/" in name:
                        resource = {"resource": name.replace(".", "_").replace("/", "_")}
                        self.add(
                            "kube_pod_container_resource_requests",
                            {**who, **resource, "container": container["name"]}, float(amount), at,
                        )  # fmt: skip


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@attrs.frozen
class Prometheus:
    """One that answers queries about recorded metrics."""

    address: str
    first: float
    last: float

    def series(self, expr: str) -> list[dict[str, Any]]:
        """All series that a query has at any time of the recording.

        Raises:
            AssertionError: it is no query.
        """
        asked = {"query": expr, "start": self.first, "end": self.last, "step": STEP_S}
        url = f"{self.address}/api/v1/query_range?{urllib.parse.urlencode(asked)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expr}: {json.load(error)['error']}") from error
        return found


@contextmanager
def prometheus_of(recorded: RecordedMetrics, folder: Path) -> Iterator[Prometheus]:
    """Prometheus with what was recorded, on a loopback address."""
    text, blocks = folder / "recorded.txt", folder / "blocks"
    text.write_text("\n".join([*recorded.lines, "# EOF\n"]))
    make = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(blocks)]
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "none.yml").write_text("{}\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        "prometheus", f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={blocks}",
        f"--config.file={folder / 'none.yml'}", "--storage.tsdb.retention.time=100y",
        "--log.level=error",
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_until_ready(f"{address}/-/ready", process)
            yield Prometheus(address, min(recorded.times), max(recorded.times))
        finally:
            process.terminate()


def _wait_until_ready(url: str, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S):
                return
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < end, "Prometheus is not ready"
            time.sleep(0.05)
