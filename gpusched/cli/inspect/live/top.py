"""``gpusched top``: the cluster live in a terminal, by keys; one frame as text where there is no terminal."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import Final

from rich.console import Console

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.clock import SystemClock
from gpusched.base.errors import InvariantBroken
from gpusched.cli.command import Subparsers, add_config, add_kubeconfig, connection_choice
from gpusched.cli.inspect import cluster_reader
from gpusched.cli.inspect.listing.view_source import SOURCES
from gpusched.cli.inspect.live.api_view import ApiView
from gpusched.cli.inspect.live.followed_cluster import FollowedCluster
from gpusched.cli.inspect.live.screen.picture import VIEWS, ScreenChoice
from gpusched.cli.inspect.live.screen.views import draw_frame
from gpusched.cli.inspect.live.top_app import TopApp
from gpusched.config.model import Config
from gpusched.io.client.api_client import ApiClient

_PLAIN_WIDTH: Final = 120
_DUMB: Final = ("", "dumb")


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "top",
        description="Show queues, what waits, what runs and every GPU live in the terminal; ? lists "
        "the keys. Without a terminal, with TERM=dumb or --once it prints one frame and ends.",
    )
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "-n", "--namespace", metavar="NS", help="list gangs of one namespace (default: all)"
    )
    scope.add_argument("-A", "--all-namespaces", action="store_true", help="the default")
    parser.add_argument("--once", action="store_true", help="print one frame as text and end")
    parser.add_argument(
        "--view", choices=VIEWS, metavar="VIEW", default=VIEWS[0],
        help=f"that is shown first: {', '.join(VIEWS)} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--source",
        choices=SOURCES,
        metavar="SOURCE",
        help="daemon (what it serves) or api (what its objects say); default: the daemon where "
        "there is one",
    )
    add_kubeconfig(parser)
    add_config(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show it until somebody quits.

    Raises:
        ConfigError: the configuration is wrong.
        NoView: the daemon's view is asked for, and there is none.
        Denied: this user may not see anything of it.
        ClusterUnreachable: no cluster.
        InvariantBroken: the screen failed.
    """
    config = cluster_reader.configuration(arguments.config)
    with gpu_resources_in_force(config.gpu_resources):
        choice = connection_choice(arguments)
        cluster_reader.with_cluster(choice, lambda api: _show(api, config, arguments))
    return 0


async def _show(api: ApiClient, config: Config, arguments: argparse.Namespace) -> None:
    clock = SystemClock()
    namespace = arguments.namespace or ""
    if namespace:
        cluster_reader.checked_object_name(namespace, what="namespace")
    home = namespace or cluster_reader.default_namespace(connection_choice(arguments))
    cluster = FollowedCluster(
        api,
        config.leader_election,
        ApiView(api, config, clock, home),
        clock,
        source=arguments.source or "",
    )
    await cluster.read()
    chosen = ScreenChoice(view=arguments.view, namespace=namespace)
    if arguments.once or not _is_interactive():
        _print_once(cluster, chosen)
        return
    app = TopApp(cluster, chosen, clock)
    await app.run_async()
    if app.fault is not None:
        raise app.fault
    if app.return_code:
        raise InvariantBroken("the screen failed, its story is above")


def _is_interactive() -> bool:
    dumb = os.environ.get("TERM", "") in _DUMB
    return sys.stdin.isatty() and sys.stdout.isatty() and not dumb


def _print_once(cluster: FollowedCluster, chosen: ScreenChoice) -> None:
    """One frame; in colours on a terminal that has them."""
    width = shutil.get_terminal_size((_PLAIN_WIDTH, 0)).columns
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a locale without the marks gets ? for them
    console = Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)
    choice = ScreenChoice(view=chosen.view, namespace=chosen.namespace, width=width)
    for line in draw_frame(cluster.picture(), choice):
        console.print(line.plain if console.no_color else line, crop=False)
