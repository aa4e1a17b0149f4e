"""``gpusched audit``: check the invariants of a live or a recorded cluster; nothing is written."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import attrs

from gpusched.api.foreign.kinds import DYNAMIC_DEVICE_KINDS
from gpusched.base import limits
from gpusched.base.clock import SystemClock
from gpusched.base.errors import Denied, NotFound, UsageError
from gpusched.cli.command import (
    Subparsers,
    add_kubeconfig,
    add_output,
    connection_choice,
    print_json,
)
from gpusched.cli.inspect import cluster_reader
from gpusched.cli.inspect.cluster_reader import GROUP_PATH, list_objects, value_at
from gpusched.cli.lab.audit.checks import AuditedCluster, Json, advice, find_violations, notes
from gpusched.io.client.api_client import ApiClient
from gpusched.io.recordings.snapshot_file import SnapshotFile, read_snapshot
from gpusched.testing.invariants import Finding

PATHS: Final = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "jobs": "/apis/batch/v1/jobs",
    "podgroups": f"{GROUP_PATH}/podgroups",
    "queues": f"{GROUP_PATH}/queues",
    "topologies": f"{GROUP_PATH}/topologies",
    "reservations": f"{GROUP_PATH}/reservations",
}
_LEASE: Final = "gpusched-system/gpusched"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_VIOLATED: Final = 1
_Read: TypeAlias = Callable[[], Awaitable[AuditedCluster]]


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "audit",
        description="Check that the invariants of gpusched hold in a cluster: no GPU given twice, "
        "no gang bound in part, queues within their limits, everybody who waits told why. Reads "
        "only; exits with 1 and a list when something does not hold.",
    )
    add_kubeconfig(parser)
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help="look at a file of gpusched snapshot instead of a live cluster",
    )
    parser.add_argument(
        "--scheduler",
        action="append",
        metavar="NAME",
        help="a schedulerName that gpusched answers to, may be repeated (default: gpusched)",
    )
    parser.add_argument(
        "--lease",
        default=_LEASE,
        metavar="NS/NAME",
        help="of the daemon (default: %(default)s)",
    )
    parser.add_argument(
        "--settle",
        type=_seconds,
        default=5.0,
        metavar="SECONDS",
        help="what does not hold counts only when it still does not so much later "
        "(default: %(default)g; 0 looks once)",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= limits.AUDIT_SETTLE_MAX_S:
        raise argparse.ArgumentTypeError(
            f"{text[:40]!r} is no number of seconds from 0 to {limits.AUDIT_SETTLE_MAX_S:g}"
        )
    return value


def run(arguments: argparse.Namespace) -> int:
    """Look, look again where something is wrong, and tell.

    Raises:
        UsageError: the lease has no name of that form.
        ConfigError: the snapshot cannot be read.
        ClusterUnreachable: no cluster.
        ApiError: the server refused.
    """
    schedulers = tuple(arguments.scheduler or ("gpusched",))
    if arguments.snapshot is not None:
        if arguments.kubeconfig is not None:
            raise UsageError("--snapshot and --kubeconfig exclude each other")
        recorded = cluster_from_snapshot(read_snapshot(arguments.snapshot), schedulers)
        return _print_findings(recorded, find_violations(recorded), arguments)
    namespace, _, name = arguments.lease.partition("/")
    lease = (
        cluster_reader.checked_object_name(namespace, what="namespace"),
        cluster_reader.checked_object_name(name, what="lease"),
    )

    async def look(api: ApiClient) -> tuple[AuditedCluster, list[Finding]]:
        return await audit_twice(
            lambda: read_cluster(api, schedulers, lease=lease),
            settle_s=arguments.settle,
            sleep=SystemClock().sleep,
        )

    seen, found = cluster_reader.with_cluster(connection_choice(arguments), look)
    return _print_findings(seen, found, arguments)


async def audit_twice(
    read: _Read, *, settle_s: float, sleep: Callable[[float], Awaitable[Any]]
) -> tuple[AuditedCluster, list[Finding]]:
    """A look, and a second one where something is wrong: what mends itself is no violation.

    Kinds are listed one after the other, so that one look may see a binding half.
    """
    seen = await read()
    found = find_violations(seen)
    if not found or not settle_s:
        return seen, found
    before = {(each.invariant, each.kind, each.name) for each in found}
    await sleep(settle_s)
    seen = await read()
    return seen, [
        each for each in find_violations(seen) if (each.invariant, each.kind, each.name) in before
    ]


# -- reading -------------------------------------------------------------------------------
async def read_cluster(
    api: ApiClient, schedulers: tuple[str, ...], *, lease: tuple[str, str]
) -> AuditedCluster:
    """Everything an audit looks at. What may not be read, but for pods, is said and left out.

    Raises:
        ClusterUnreachable: no answer.
        Denied: pods may not be listed.
        ApiError: the server refused for another reason.
    """
    answer = await api.request("GET", "/version", timeout_s=limits.REQUEST_TIMEOUT_S)
    now = answer.server_time()
    objects: dict[str, list[Json]] = {}
    unread: list[str] = []
    for kind, path in PATHS.items():
        try:
            objects[kind] = await list_objects(api, path, what=kind)
        except NotFound:
            unread.append(f"the cluster does not know {kind}: kubectl apply -k manifests/")
        except Denied as error:
            if kind == "pods":
                raise
            unread.append(f"{kind} were not looked at: {error}")
    unread += await _read_devices(api, objects)
    seen = AuditedCluster(
        objects=objects, now=SystemClock().now() if now is None else now, schedulers=schedulers
    )
    namespace, name = (quote(each) for each in lease)
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    try:
        found = await cluster_reader.get_object(api, path, what=f"Lease {namespace}/{name}")
        if found is None:
            unread.append(f"there is no Lease {namespace}/{name}: no daemon has ever run here")
    except Denied as error:
        found = None
        unread.append(f"seals and terms were not looked at: {error}")
    policies = None
    try:
        policies = await _policies(api)
    except (Denied, NotFound) as error:
        unread.append(f"admission policies were not looked at: {error}")
    return attrs.evolve(seen, lease=found, policies=policies, unread=tuple(unread))


async def _read_devices(api: ApiClient, objects: dict[str, list[Json]]) -> list[str]:
    """Add claims and slices of devices, where they are served; what could not be read, and why."""
    kinds = [DYNAMIC_DEVICE_KINDS[kind] for kind in ("ResourceClaim", "ResourceSlice")]
    found: dict[str, list[Json]] = {}
    try:
        for kind, version in (await cluster_reader.served_versions(api, kinds)).items():
            if version.endswith("/v1beta1"):
                return [f"devices were not looked at: they are served as {version} alone"]
            found[kind.plural] = await list_objects(
                api, f"/apis/{version}/{kind.plural}", what=kind.plural
            )
    except (Denied, NotFound) as error:
        return [f"devices were not looked at: {error}"]
    objects |= found
    return []


async def _policies(api: ApiClient) -> frozenset[str]:
    """Names of admission policies that deny: those with a binding that says so."""
    made = await _names(api, "validatingadmissionpolicies")
    bindings = await list_objects(
        api, f"{_ADMISSION}/validatingadmissionpolicybindings", what="admission policy bindings"
    )
    return frozenset(
        str(value_at(each, "spec", "policyName"))
        for each in bindings
        if "Deny" in (value_at(each, "spec", "validationActions") or ())
    ).intersection(made)


async def _names(api: ApiClient, plural: str) -> set[str]:
    items = await list_objects(api, f"{_ADMISSION}/{plural}", what="admission policies")
    return {str(value_at(each, "metadata", "name")) for each in items}


def cluster_from_snapshot(snapshot: SnapshotFile, schedulers: tuple[str, ...]) -> AuditedCluster:
    """A recorded cluster; the Lease and the policies are not in a snapshot."""
    by_plural = {resource.partition(".")[0]: resource for resource in PATHS}
    ours = {
        **by_plural,
        "jobs": "jobs.batch",
        **{
            plural: f"{plural}.scheduling.gpusched.io"
            for plural in ("podgroups", "queues", "topologies", "reservations")
        },
    }
    unread = [
        f"{each.resource} are not in the snapshot: {each.why}"
        for each in snapshot.missing
        if each.resource in ours.values()
    ]
    unread.append("seals, terms and admission policies are not in a snapshot")
    if snapshot.anonymized:
        unread.append("I15 was not looked at: an anonymised snapshot has no messages")
    return AuditedCluster(
        objects={plural: list(snapshot.objects.get(name, ())) for plural, name in ours.items()},
        now=snapshot.taken_at,
        schedulers=schedulers,
        unread=tuple(unread),
        messages=not snapshot.anonymized,
    )


# -- telling -------------------------------------------------------------------------------
def _print_findings(
    seen: AuditedCluster, found: list[Finding], arguments: argparse.Namespace
) -> int:
    remarks = notes(seen)
    if arguments.output == "json":
        print_json(
            {
                "holds": not found,
                "looked": {kind: len(items) for kind, items in seen.objects.items()},
                "findings": [
                    {
                        "invariant": each.invariant,
                        "kind": each.kind,
                        "name": each.name,
                        "sentence": each.sentence,
                        "advice": advice(each),
                    }
                    for each in found
                ],
                "notes": remarks,
            }
        )
        return _VIOLATED if found else 0
    looked = ", ".join(f"{len(items):,} {kind}" for kind, items in seen.objects.items() if items)
    for each in found:
        print(f"{each.invariant} {each.kind} {_line(each.name)}: {_line(each.sentence)}")
        print(f"   {advice(each)}")
    for remark in remarks:
        print(f"note: {_line(remark)}")
    count = "1 violation" if len(found) == 1 else f"{len(found):,} violations"
    print(f"{count if found else 'all invariants hold'}: looked at {looked or 'nothing'}")
    return _VIOLATED if found else 0


def _line(text: str) -> str:
    """Foreign text on one line, without anything a terminal would obey."""
    return "".join(each if each.isprintable() else " " for each in text)
