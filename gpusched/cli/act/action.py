"""What commands that change gangs share: their options, one line for each object, and what could not be done."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.errors import (
    ApiError,
    ClusterUnreachable,
    Denied,
    GpuschedError,
    OutcomeUnknown,
)
from gpusched.cli.act.named_objects import NamedObject, find_object, parse_wanted_objects
from gpusched.cli.command import (
    Parser,
    Subparsers,
    add_kubeconfig,
    add_output,
    clean_cell,
    connection_choice,
    print_json,
)
from gpusched.cli.inspect.cluster_reader import Json, default_namespace, with_cluster
from gpusched.cli.inspect.listing.printed_listing import print_yaml
from gpusched.io.client.api_client import MERGE_PATCH, ApiClient, api_error
from gpusched.io.client.missing_rights import explain_denied
from gpusched.io.client.transport import JSON

HOLD: Final = "gpusched.io/hold"
"""The annotation that holds a gang; see docs/commands.md."""
_DONE_IN_PART: Final = 1
_REVIEW: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class ActionRefused(GpuschedError):
    """What was asked for makes no sense for this object; the sentence says what does."""

    exit_status = _DONE_IN_PART


@frozen
class Done:
    """What was done with one object.

    Attributes:
        text: ends the line that tells it: ``held``, ``requeued (4 pods evicted)``.
        item: the object afterwards.
        notes: warnings.
    """

    text: str
    item: Json
    notes: tuple[str, ...] = ()


@frozen
class Server:
    """The way to write.

    Attributes:
        api: of the cluster.
        dry: whether the server is asked to check everything and store nothing.
    """

    api: ApiClient
    dry: bool

    async def patch(self, found: NamedObject, change: Json) -> Json:
        """The object after a merge patch, if it is still the one that was seen.

        Raises:
            ApiError: the server refused.
        """
        meta = {"uid": value_of(found.item, "uid"), **change.get("metadata", {})}
        return await self.send(
            "PATCH", found.path, {**change, "metadata": meta},
            doing=f"change {found.title}", content_type=MERGE_PATCH,
        )  # fmt: skip

    async def send(
        self, method: str, path: str, body: Json, *, doing: str, content_type: str = JSON
    ) -> Json:
        """Send one write and return the answer.

        Raises:
            ApiError: the server refused.
        """
        query = {"fieldManager": "gpusched-cli"} | ({"dryRun": "All"} if self.dry else {})
        answer = await self.api.request(
            method,
            path,
            query=query,
            body=json.dumps(body).encode(),
            content_type=content_type,
            timeout_s=limits.REQUEST_TIMEOUT_S,
        )
        if not answer.ok:
            error = api_error(answer, doing=doing, write=True)
            raise explain_denied(error) if isinstance(error, Denied) else error
        told = json.loads(answer.body or b"{}")
        return told if isinstance(told, dict) else {}

    async def user_name(self) -> str:
        """Who we are, as the server sees it; empty where it does not say."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            told = await self.send("POST", _REVIEW, body, doing="ask who this is")
        except (GpuschedError, ValueError):
            return ""
        return str(told.get("status", {}).get("userInfo", {}).get("username") or "")


Act = Callable[[Server, NamedObject, argparse.Namespace], Awaitable[Done]]


def value_of(item: Mapping[str, Any], key: str) -> str:
    """Text of one key of an object's metadata."""
    return str(item.get("metadata", {}).get(key) or "")


def add_action(subparsers: Subparsers, name: str, *, text: str, act: Act) -> Parser:
    """Add a command that does something with each object that is named.

    Args:
        subparsers: of the program.
        name: of the command.
        text: what it does.
        act: does it with one object.
    """
    parser = subparsers.add_parser(name, description=text)
    parser.add_argument(
        "objects",
        nargs="+",
        metavar="KIND NAME",
        help="such as job train eval, or job/train podgroup/eval: job, podgroup, pod, or a controller's kind",
    )
    parser.add_argument("-n", "--namespace", metavar="NS", help="when a NAME has none")
    parser.add_argument(
        "--dry-run", "--dry-run=server", dest="dry_run", action="store_true",
        help="the server checks everything and stores nothing",
    )  # fmt: skip
    add_output(parser, "json", "yaml", "name")
    add_kubeconfig(parser)
    parser.interleaved = True
    parser.set_defaults(run=lambda arguments: run_action(arguments, act))
    return parser


def run_action(arguments: argparse.Namespace, act: Act) -> int:
    """Act on each object; 1 when something could not be done, after all others.

    Raises:
        UsageError: no object, or one of a kind that is not known.
        ClusterUnreachable: no cluster.
        Denied: nothing at all was allowed.
    """
    choice = connection_choice(arguments)
    namespace = arguments.namespace or default_namespace(choice)
    wanted = parse_wanted_objects(arguments.objects, namespace)

    async def act_on_all(api: ApiClient) -> tuple[list[Json], list[GpuschedError]]:
        server, items, faults = Server(api, arguments.dry_run), [], []
        for each in wanted:
            try:
                found = await find_object(api, each)
                if found is None:
                    raise ActionRefused(f"there is no {each} in namespace {each.namespace}")
                done = await act(server, found, arguments)
            except ClusterUnreachable:
                raise
            except GpuschedError as error:
                faults.append(error)
                print(f"gpusched: {error}", file=sys.stderr)
                continue
            items.append(done.item)
            _print_done(found, done, arguments)
        return items, faults

    items, faults = with_cluster(choice, act_on_all)
    _print_items(items, arguments.output)
    statuses = {_status(error) for error in faults}
    if not faults:
        return 0
    return statuses.pop() if len(statuses) == 1 and not items else _DONE_IN_PART


def _status(error: GpuschedError) -> int:
    """The exit status of one fault: a server that answers and refuses is no missing one."""
    answered = isinstance(error, ApiError) and not isinstance(error, Denied | OutcomeUnknown)
    return _DONE_IN_PART if answered else error.exit_status


def _print_done(found: NamedObject, done: Done, arguments: argparse.Namespace) -> None:
    for note in done.notes:
        print(f"gpusched: {note}", file=sys.stderr)
    if arguments.output == "name":
        print(clean_cell(found.title))
    elif arguments.output is None:
        print(clean_cell(f"{found.title} {done.text}{' (dry run)' if arguments.dry_run else ''}"))


def _print_items(items: list[Json], output: str | None) -> None:
    if output not in {"json", "yaml"} or not items:
        return
    document = items[0]
    if len(items) > 1:
        document = {"apiVersion": "v1", "kind": "List", "items": items}
    (print_json if output == "json" else print_yaml)(document)
