"""Questions that the process beside the daemon answers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from gpusched.advice.submission.manifests import SubmittedObject
from gpusched.base.errors import ApiError, Denied, UsageError
from gpusched.cli.act.named_objects import WantedObject
from gpusched.cli.command import add_config, add_kubeconfig
from gpusched.cli.inspect.cluster_reader import list_objects
from gpusched.cli.inspect.listing.view_source import SOURCES, ViewSource
from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.view_client import ViewClient
from gpusched.view.over_time.advice_view import AdviceView
from gpusched.view.over_time.submission_view import SubmissionVariantsView, SubmissionView

_BAD_REQUEST: Final = 400


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that ask: about which cluster, and who answers."""
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help="a cluster that gpusched snapshot recorded (default: the live cluster)",
    )
    add_kubeconfig(parser)
    parser.add_argument(
        "--source",
        choices=SOURCES,
        metavar="SOURCE",
        help="daemon (a process beside it answers, with what you may see) or api (all is read and decided "
        "here); default: the daemon where there is one",
    )
    add_config(parser)


async def ask_advice(
    api: ApiClient, source: ViewSource, wanted: WantedObject
) -> tuple[AdviceView | None, tuple[str, ...]]:
    """What would let a gang start, and notes on where that was decided.

    Args:
        api: of the cluster.
        source: where to ask.
        wanted: the gang, or what made it.

    Returns:
        None where the daemon does not answer.
    """

    async def of_daemon(client: ViewClient) -> AdviceView | None:
        return await client.advice(wanted.namespace, wanted.word, wanted.name)

    async def of_api() -> AdviceView | None:
        return None

    return await source.read(api, of_daemon=of_daemon, of_api=of_api)


async def ask_when(
    api: ApiClient,
    source: ViewSource,
    manifests: bytes,
    *,
    namespace: str,
    options: Mapping[str, Sequence[str]],
) -> tuple[SubmissionView | SubmissionVariantsView | None, tuple[str, ...]]:
    """When manifests would start, and notes on where that was decided.

    Args:
        api: of the cluster.
        source: where to ask.
        manifests: that would be submitted.
        namespace: of those that name none.
        options: values of those that are varied.

    Returns:
        None where the daemon does not answer.

    Raises:
        UsageError: the daemon says that the question means nothing, as this command would.
    """
    varied = {name: ",".join(values) for name, values in options.items() if values}

    async def of_daemon(client: ViewClient) -> SubmissionView | SubmissionVariantsView | None:
        try:
            if varied:
                return await client.when_variants(manifests, namespace, varied)
            return await client.when(manifests, namespace)
        except ApiError as error:
            if error.status != _BAD_REQUEST:
                raise
            raise UsageError(str(error)) from error

    async def of_api() -> SubmissionView | SubmissionVariantsView | None:
        return None

    return await source.read(api, of_daemon=of_daemon, of_api=of_api)


async def limit_ranges(
    api: ApiClient, documents: Sequence[SubmittedObject], namespace: str
) -> tuple[tuple[SubmittedObject, ...], list[str]]:
    """LimitRanges of the namespaces of documents, read with the rights of who asks, and what could not be read.

    Args:
        api: of the cluster.
        documents: that would be submitted.
        namespace: of those that name none.
    """
    spaces = {str(each.obj["metadata"].get("namespace") or namespace) for each in documents}
    found: list[SubmittedObject] = []
    notes = []
    for space in sorted(spaces):
        path = f"/api/v1/namespaces/{quote(space, safe='')}/limitranges"
        try:
            items = await list_objects(api, path, what=f"LimitRanges of namespace {space}")
        except Denied as error:
            notes.append(f"LimitRanges of namespace {space} are not looked at: {error}")
            continue
        for each in items:
            obj = {**each, "apiVersion": "v1", "kind": "LimitRange"}
            found.append(SubmittedObject(obj, "the cluster"))
    return tuple(found), notes
