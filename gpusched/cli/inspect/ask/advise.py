"""``gpusched advise``: what would help a gang, and what an admin could change. It writes nothing."""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import msgspec

from gpusched import __version__
from gpusched.base.errors import NotInstalled, UsageError
from gpusched.cli.act.named_objects import WantedObject, parse_wanted_objects
from gpusched.cli.command import (
    Subparsers,
    add_output,
    connection_choice,
    print_json,
)
from gpusched.cli.inspect.ask.advice_text import advice_lines
from gpusched.cli.inspect.ask.ask_daemon import add_cluster_options, ask_advice
from gpusched.cli.inspect.cluster_reader import configuration, default_namespace, with_cluster
from gpusched.cli.inspect.listing.printed_listing import print_notes
from gpusched.cli.inspect.listing.view_source import ViewSource
from gpusched.config.model import Config
from gpusched.view.over_time.advice_view import AdviceView


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
    add_cluster_options(parser)
    if find_spec("gpusched.lab") is not None:
        _add_mig_options(parser)
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


def _add_mig_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``advise mig`` that others have not."""
    group = parser.add_argument_group("of mig")
    group.add_argument(
        "--layouts",
        metavar="FILE",
        help="configurations of mig-parted, as in the MIG manager's ConfigMap (default: those that "
        "NVIDIA's GPU operator ships)",
    )
    group.add_argument(
        "--for", dest="span", default="6h", metavar="DURATION", help="simulate so long (6h)"
    )
    group.add_argument(
        "--assume-duration",
        default="1h",
        metavar="DURATION",
        help="of Jobs and groups that do not tell theirs (1h)",
    )


def _mig_advice() -> ModuleType | None:
    """Advice on MIG layouts, which simulates them: None where the extra lab is not installed."""
    if find_spec("gpusched.lab") is None:
        return None
    return import_module("gpusched.cli.lab.mig_advice")


def _advise_gang(arguments: argparse.Namespace) -> int:
    choice = connection_choice(arguments)
    namespace = arguments.namespace or (
        "default" if arguments.snapshot else default_namespace(choice)
    )
    wanted = parse_wanted_objects(arguments.about, namespace)
    if len(wanted) != 1:
        raise UsageError("advise takes one gang at a time")
    config = configuration(arguments.config)
    if arguments.snapshot:
        if arguments.source == "daemon":
            raise UsageError("a file is not what the daemon tells: leave out --source daemon")
        answer = _decided_here(arguments, config, wanted[0])
    else:
        source = ViewSource(chosen=arguments.source, election=config.leader_election)
        told, notes = with_cluster(choice, lambda api: ask_advice(api, source, wanted[0]))
        print_notes(notes)
        answer = told or _decided_here(arguments, config, wanted[0])
    if arguments.output == "json":
        print_json(msgspec.to_builtins(answer))
    else:
        for line in advice_lines(answer):
            print(line)
    return 0


def _decided_here(
    arguments: argparse.Namespace, config: Config, wanted: WantedObject
) -> AdviceView:
    # Sessions and solver take a second to import, which who asks a daemon does not need.
    answer: AdviceView = import_module("gpusched.cli.inspect.ask.decide_here").advise_here(
        arguments, config, wanted
    )
    return answer
