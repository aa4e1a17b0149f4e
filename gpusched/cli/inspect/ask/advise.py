"""``gpusched advise``: what would help a gang, and what an admin could change. It writes nothing."""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from gpusched import __version__
from gpusched.advice.advisor import advise_gang
from gpusched.advice.named_gang import find_gang
from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.clock import SystemClock
from gpusched.base.errors import NotInstalled, UsageError
from gpusched.cli.act.named_objects import parse_wanted_objects
from gpusched.cli.command import (
    Subparsers,
    add_config,
    add_kubeconfig,
    add_output,
    connection_choice,
    print_json,
)
from gpusched.cli.inspect.ask.advice_text import advice_json, advice_lines
from gpusched.cli.inspect.ask.recorded_cluster import read_cluster
from gpusched.cli.inspect.cluster_reader import configuration, default_namespace


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "advise",
        description="Search for the smallest changes that would let a gang start which waits: of what it asks "
        "for, of its queue, of nodes, of others. Each is decided on a copy of the cluster before it is "
        "told; nothing is written (docs/advice.md). With mig: layouts of MIG partitions for idle nodes: "
        "what serves the most of what waits, then of what usually runs, with the gain from a simulation "
        "(docs/mig.md).",
        epilog="gpusched advise podgroup train -n team-a; gpusched advise mig --snapshot cluster.gz",
    )
    parser.add_argument(
        "about", nargs="+", metavar="KIND NAME", help="a gang, such as job train; or mig"
    )
    parser.add_argument("-n", "--namespace", metavar="NS", help="when NAME has none")
    parser.add_argument(
        "--snapshot",
        metavar="FILE",
        help="a cluster that gpusched snapshot recorded (default: the live cluster)",
    )
    add_kubeconfig(parser)
    add_config(parser)
    mig = _mig_advice()
    if mig is not None:
        mig.add_mig_options(parser)
    add_output(parser)
    parser.interleaved = True
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Advise; 0 also where nothing helps.

    Raises:
        UsageError: no such gang, or options that cannot be understood.
        ConfigError: a file cannot be used.
        NotInstalled: mig without the extra lab.
        ClusterUnreachable: no cluster.
        Denied: the cluster may not be read.
    """
    if arguments.about[0] == "mig":
        if len(arguments.about) > 1:
            raise UsageError("advise mig takes no name: it looks at all nodes")
        mig = _mig_advice()
        if mig is None:
            raise NotInstalled(
                "advise mig needs the extra lab, which is not installed: "
                f'run pip install ".[lab]" in a checkout of gpusched {__version__}'
            )
        status: int = mig.advise_mig(arguments)
        return status
    return _advise_gang(arguments)


def _mig_advice() -> ModuleType | None:
    """Advice on MIG layouts, which simulates them: None where the extra lab is not installed."""
    if find_spec("gpusched.lab") is None:
        return None
    return import_module("gpusched.cli.lab.mig_advice")


def _advise_gang(arguments: argparse.Namespace) -> int:
    namespace = arguments.namespace or (
        "default" if arguments.snapshot else default_namespace(connection_choice(arguments))
    )
    wanted = parse_wanted_objects(arguments.about, namespace)
    if len(wanted) != 1:
        raise UsageError("advise takes one gang at a time")
    config = configuration(arguments.config)
    cluster = read_cluster(arguments)
    with gpu_resources_in_force(config.gpu_resources):
        trial = TrialCluster(cluster.objects, config, now=cluster.taken_at, clock=SystemClock())
        gang = find_gang(trial, wanted[0].word, wanted[0].namespace, wanted[0].name)
        if gang is None:
            raise UsageError(
                f"no gang of {wanted[0]} waits in namespace {wanted[0].namespace}; "
                "gpusched get jobs -A lists what waits and runs"
            )
        advice = advise_gang(trial, gang)
        if arguments.output == "json":
            print_json(advice_json(advice, gang))
        else:
            for line in advice_lines(advice, gang, now=trial.now):
                print(line)
    return 0
