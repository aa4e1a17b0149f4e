"""Reads the parts of a bundle, each for itself: what cannot be read is named, and the rest is read."""

from __future__ import annotations

import gzip
import io
import json
import platform
import re
from collections.abc import Awaitable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from gpusched import API_VERSION, __version__
from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import ApiError, GpuschedError
from gpusched.cli.bundle.archive import BundlePart, MissingPart, mask_secrets
from gpusched.cli.inspect.cluster_reader import get_object, list_objects, value_at
from gpusched.config.load import configuration_path, read_files
from gpusched.io.client.api_client import ApiClient, api_error
from gpusched.io.decisions.decision_file import SUFFIX
from gpusched.io.recordings.pseudonyms import Pseudonyms
from gpusched.io.recordings.snapshot_file import write_snapshot
from gpusched.io.recordings.snapshot_reader import take_snapshot

_OURS: Final = "app.kubernetes.io/name=gpusched"
_LIBRARIES: Final = ("aiohttp", "kubernetes_asyncio", "msgspec", "numpy", "ortools")
_OPEN_LABELS: Final = frozenset(
    {"action", "change", "hash", "hook", "le", "reason", "result", "stage", "state", "what"}
)
"""Labels of metrics whose values gpusched names itself."""
_SAMPLE: Final = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_NAMES_THINGS: Final = "it names things as users do, and --anonymize was given"
_NO_FOLDER: Final = (
    "no folder was named with --decisions; gpusched run --record-decisions writes them"
)
_STATUS_FIELDS: Final = (
    "phase",
    "conditions",
    "containerStatuses",
    "reason",
    "message",
    "startTime",
)


@frozen(kw_only=True)
class BundleSources:
    """Where the parts come from.

    Attributes:
        namespace: of the daemon.
        config: a file; None for the mounted one, else the ConfigMap of the daemon.
        decisions: a folder of recorded decisions; None for none.
        metrics: the address of one daemon's metrics; empty to ask every replica by the API server.
        pseudonyms: in place of names; None leaves them.
    """

    namespace: str
    config: str | None
    decisions: Path | None
    metrics: str
    pseudonyms: Pseudonyms | None


class BundleCollector:
    """Gathers parts, and what is missing.

    Args:
        sources: where they come from.
        clock: time of the snapshot, where the server tells none.
    """

    def __init__(self, sources: BundleSources, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self.parts: list[BundlePart] = []
        self.missing: list[MissingPart] = []
        self.complaints: list[str] = []
        """What is missing, as a person at the terminal is told it: with names."""
        self.server = "not known"
        """Version of the API server."""

    def read_files(self) -> None:
        """All that is on this machine."""
        self._put("versions.json", _json(_versions()), "versions of gpusched and its libraries")
        self._read_decisions()

    async def read_cluster(self, api: ApiClient) -> None:
        """All that an API server tells.

        Raises:
            ClusterUnreachable: nothing answers.
        """
        try:
            self.server = await api.server_version()
        except ApiError as error:
            self._leave_out("version of the API server", str(error))
        pods = await self._pods(api)
        await self._read_part("configuration", self._read_configuration(api))
        await self._read_part("snapshot.jsonl.gz", self._read_snapshot(api))
        await self._read_part("metrics", self._read_metrics(api, pods))
        if self._sources.pseudonyms is not None:
            self._leave_out("logs", _NAMES_THINGS)
            self._leave_out("state.json", _NAMES_THINGS)
            self._leave_out("events.json", _NAMES_THINGS)
            return
        await self._read_part("logs", self._read_logs(api, pods))
        await self._read_part("state.json", self._read_state(api, pods))
        await self._read_part("events.json", self._read_events(api))

    def without_cluster(self, error: Exception) -> None:
        """Name all that could not even be asked for, and read what needs no cluster."""
        for name in ("snapshot.jsonl.gz", "metrics", "logs", "state.json", "events.json"):
            self._leave_out(name, str(error))
        try:
            if not self._read_mounted_configuration():
                self._leave_out("configuration", str(error))
        except GpuschedError as wrong:
            self._leave_out("configuration", str(wrong))

    # -- parts -----------------------------------------------------------------------------
    def _read_decisions(self) -> None:
        folder = self._sources.decisions
        if folder is None:
            why = (
                "no folder was named with --decisions; gpusched run --record-decisions writes them"
            )
            self._leave_out("decisions", why)
            return
        if self._sources.pseudonyms is not None:
            self._leave_out("decisions", _NAMES_THINGS)
            return
        try:
            files = sorted(folder.glob(f"*{SUFFIX}"), reverse=True)
            left = limits.BUNDLE_DECISIONS_BYTES_MAX
            for count, file in enumerate(files):
                left -= file.stat().st_size
                if left < 0:
                    self._leave_out("decisions", f"the older {len(files) - count} are too many")
                    break
                self._put(f"decisions/{file.name}", file.read_bytes(), "gpusched replay repeats it")
            if not files:
                self._leave_out("decisions", f"there are none in {folder}")
        except OSError as error:
            self._leave_out("decisions", f"{folder} cannot be read: {error.strerror or error}")

    def _read_mounted_configuration(self) -> bool:
        """Whether a file was named, or is mounted."""
        path = configuration_path(self._sources.config)
        if path is None:
            return False
        if self._sources.pseudonyms is not None:
            self._leave_out("configuration", _NAMES_THINGS)
            return True
        files = read_files(path)
        shown = {"gpusched.yaml": files.raw, "gpu-layouts.yaml": files.layouts}
        for name, raw in shown.items():
            if raw is not None:
                text = raw.decode("utf-8", "replace")
                self._put_text(f"configuration/{name}", text, "as it is mounted, or was named")
        return True

    async def _read_configuration(self, api: ApiClient) -> None:
        if self._read_mounted_configuration():
            return
        if self._sources.pseudonyms is not None:
            self._leave_out("configuration", _NAMES_THINGS)
            return
        path = f"/api/v1/namespaces/{self._sources.namespace}/configmaps/gpusched"
        found = await get_object(api, path, what="the ConfigMap gpusched")
        data = value_at(found, "data")
        if not isinstance(data, dict):
            self._leave_out("configuration", f"{self._sources.namespace} has no ConfigMap gpusched")
            return
        for name in sorted(data):
            safe = re.sub(r"[^\w.-]", "_", name)
            self._put_text(f"configuration/{safe}", str(data[name]), "of the ConfigMap gpusched")

    async def _read_snapshot(self, api: ApiClient) -> None:
        names = self._sources.pseudonyms
        taken = await take_snapshot(api, now=self._clock.now(), pseudonyms=names)
        packed = io.BytesIO()
        with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as out:
            write_snapshot(out, taken.header, taken.lines)  # type: ignore[arg-type]
        self._put("snapshot.jsonl.gz", packed.getvalue(), "the cluster; gpusched simulate plays it")
        for each in taken.header.missing:
            if each.served:
                self._leave_out(f"snapshot.jsonl.gz, {each.resource}", each.why)

    async def _read_metrics(self, api: ApiClient, pods: list[dict[str, Any]]) -> None:
        if self._sources.metrics:
            async with (
                aiohttp.ClientSession(trust_env=False) as session,
                session.get(
                    self._sources.metrics,
                    timeout=aiohttp.ClientTimeout(total=limits.REQUEST_TIMEOUT_S),
                ) as answer,
            ):
                answer.raise_for_status()
                self._put_metrics("metrics.txt", await answer.text())
            return
        for number, pod in enumerate(pods):
            name = str(value_at(pod, "metadata", "name"))
            path = f"/api/v1/namespaces/{self._sources.namespace}/pods/{name}:8080/proxy/metrics"
            shown = name if self._sources.pseudonyms is None else str(number)
            await self._read_part(f"metrics/{shown}.txt", self._metrics_of(api, path, shown))

    async def _metrics_of(self, api: ApiClient, path: str, shown: str) -> None:
        self._put_metrics(f"metrics/{shown}.txt", (await _text(api, path, "metrics")).body)

    def _put_metrics(self, name: str, text: str) -> None:
        if self._sources.pseudonyms is not None:
            text = anonymous_metrics(text, self._sources.pseudonyms)
        self._put_text(name, text, "metrics of one replica")

    async def _read_logs(self, api: ApiClient, pods: list[dict[str, Any]]) -> None:
        for pod in pods:
            name = str(value_at(pod, "metadata", "name"))
            statuses = value_at(pod, "status", "containerStatuses") or []
            again = any(each.get("restartCount") for each in statuses if isinstance(each, dict))
            for previous in (False, True) if again else (False,):
                file = f"logs/{name}{'-previous' if previous else ''}.txt"
                await self._read_part(file, self._log_of(api, name, file, previous=previous))

    async def _log_of(self, api: ApiClient, pod: str, file: str, *, previous: bool) -> None:
        path = f"/api/v1/namespaces/{self._sources.namespace}/pods/{pod}/log"
        query = {
            "container": "gpusched", "timestamps": "true",
            "tailLines": str(limits.BUNDLE_LOG_LINES_MAX),
            "limitBytes": str(limits.BUNDLE_LOG_BYTES_MAX),
        }  # fmt: skip
        if previous:
            query["previous"] = "true"
        answer = await _text(api, path, "logs", query)
        about = "the process before the last restart" if previous else "the last lines"
        self._put_text(file, answer.body, about)

    async def _read_state(self, api: ApiClient, pods: list[dict[str, Any]]) -> None:
        """What Kubernetes says of the daemon; of specifications nothing, which hold environment."""
        space = self._sources.namespace
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases/gpusched"
        held = await get_object(api, lease, what="the Lease gpusched")
        state = {
            "pods": [
                {
                    "name": value_at(pod, "metadata", "name"),
                    "node": value_at(pod, "spec", "nodeName"),
                    "images": [each.get("image") for each in value_at(pod, "spec", "containers") or []],
                    "status": {
                        key: value_at(pod, "status", key)
                        for key in _STATUS_FIELDS
                        if value_at(pod, "status", key) is not None
                    },
                }
                for pod in pods
            ],
            "lease": value_at(held, "spec"),
        }  # fmt: skip
        self._put_text("state.json", _json(state).decode(), "pods and Lease of the daemon")

    async def _read_events(self, api: ApiClient) -> None:
        path = f"/api/v1/namespaces/{self._sources.namespace}/events"
        fields = ("lastTimestamp", "eventTime", "reason", "message")
        told = [
            {key: each.get(key) for key in fields}
            for each in await list_objects(api, path, what="events")
        ]
        self._put_text("events.json", _json(told).decode(), "events about the daemon's objects")

    async def _pods(self, api: ApiClient) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{self._sources.namespace}/pods"
        found: list[dict[str, Any]] = []

        async def read() -> None:
            query = {"labelSelector": _OURS}
            found.extend(await list_objects(api, path, what="pods of the daemon", query=query))
            if not found:
                self._leave_out(
                    "pods of the daemon",
                    f"there are none in the namespace {self._sources.namespace}; "
                    "--namespace names another",
                )

        await self._read_part("pods of the daemon", read())
        return sorted(found, key=lambda pod: str(value_at(pod, "metadata", "name")))

    # -- gathering -------------------------------------------------------------------------
    async def _read_part(self, name: str, reading: Awaitable[None]) -> None:
        """Read one part; what goes wrong with it is told and costs no other."""
        try:
            await reading
        except (GpuschedError, OSError, aiohttp.ClientError, TimeoutError, ValueError) as error:
            self._leave_out(name, str(error) or type(error).__name__)

    def _put(self, name: str, body: bytes, about: str) -> None:
        self.parts.append(BundlePart(name, body, about))

    def _put_text(self, name: str, text: str, about: str) -> None:
        self._put(name, mask_secrets(text).encode("utf-8", "replace"), about)

    def _leave_out(self, name: str, why: str) -> None:
        told = " ".join(mask_secrets(why).split())
        self.complaints.append(f"{name}: {told}")
        if self._sources.pseudonyms is not None and why not in (_NAMES_THINGS, _NO_FOLDER):
            told = "it could not be read; the command told why, with names, at the terminal alone"
        self.missing.append(MissingPart(name, told))


def anonymous_metrics(text: str, pseudonyms: Pseudonyms) -> str:
    """Metrics with pseudonyms in labels whose values others name.

    Raises:
        ValueError: the text is no metrics.
    """
    list(text_string_to_metric_families(text))

    def renamed(match: re.Match[str]) -> str:
        name, value = match.groups()
        return match[0] if name in _OPEN_LABELS else f'{name}="{pseudonyms.pseudonym(value)}"'

    return "\n".join(
        line if line.startswith("#") else _SAMPLE.sub(renamed, line) for line in text.split("\n")
    )


@frozen
class _Text:
    body: str


async def _text(api: ApiClient, path: str, what: str, query: dict[str, str] | None = None) -> _Text:
    answer = await api.request("GET", path, query=query, timeout_s=limits.REQUEST_TIMEOUT_S)
    if not answer.ok:
        raise api_error(answer, doing=f"read {what}")
    return _Text(answer.body.decode("utf-8", "replace"))


def _versions() -> dict[str, Any]:
    return {
        "gpusched": __version__,
        "apiVersion": API_VERSION,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": {name: metadata.version(name) for name in _LIBRARIES},
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
