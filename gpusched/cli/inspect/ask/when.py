"""``gpusched when``: when manifests would start if they were submitted now. It writes nothing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

from gpusched.advice.submission.manifests import (
    MANIFEST_BYTES_MAX,
    SubmittedObject,
    read_manifests,
)
from gpusched.base.errors import ConfigError, UsageError
from gpusched.cli.command import (
    Subparsers,
    add_output,
    connection_choice,
    print_json,
)
from gpusched.cli.inspect.ask.ask_daemon import add_cluster_options, ask_when, limit_ranges
from gpusched.cli.inspect.ask.submission_text import submission_lines, variant_lines
from gpusched.cli.inspect.cluster_reader import configuration, default_namespace, with_cluster
from gpusched.cli.inspect.listing.printed_listing import print_notes, print_yaml
from gpusched.cli.inspect.listing.view_source import ViewSource
from gpusched.config.yaml_parser import read_file
from gpusched.view.over_time.submission_view import (
    ONLY_GIVEN_LIMITS,
    SubmissionVariantsView,
    SubmissionView,
    with_remark,
)

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_NEVER: Final = 1


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "when",
        description="When would it start if it were submitted now, and where; or why never, whom it would evict "
        "and what would be better. Pods are those that the controllers of the manifests would make; the "
        "daemon's own sessions decide about them on a copy of the cluster; nothing is written (docs/when.md). "
        "Exit status 1 where some of it never starts as it is.",
        epilog="gpusched when -f job.yaml -n team-a; helm template chart | gpusched when -f -",
    )
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        action="append",
        required=True,
        help="manifests: a file, a folder of them, or - for standard input; may be repeated",
    )  # fmt: skip
    parser.add_argument("-n", "--namespace", metavar="NS", help="of manifests that name none")
    variants = parser.add_argument_group(
        "variants", "several values make a table of all combinations, the best first"
    )
    for option, (metavar, text) in _VARIED.items():
        variants.add_argument(
            f"--{option}", metavar=metavar, action="append", default=[], help=text
        )
    add_cluster_options(parser)
    add_output(parser, "json", "yaml")
    parser.set_defaults(run=run)


_VARIED: Final = {
    "queue": ("QUEUE,...", "submitted to another queue"),
    "members": ("N,...", "with so many pods, all of which start together"),
    "level": ("LEVEL,...", "all pods in one domain of a topology level, such as rack; or none"),
    "gpus": ("TYPE,...", "on GPUs of one type, by some words of its name, such as h100"),
}


def run(arguments: argparse.Namespace) -> int:
    """Answer; 1 where some of it never starts as it is, of variants none.

    Raises:
        UsageError: options that cannot be understood.
        ConfigError: a file cannot be used.
        ClusterUnreachable: no cluster.
        Denied: the cluster may not be read.
    """
    documents = tuple(_documents(arguments.filename))
    options = {name: _split_values(getattr(arguments, name)) for name in _VARIED}
    for name, values in options.items():
        if getattr(arguments, name) and not values:
            raise UsageError(f"--{name} names nothing")
    answer = _answered(arguments, documents, options)
    if arguments.output == "json":
        print_json(msgspec.to_builtins(answer))
    elif arguments.output == "yaml":
        print_yaml(msgspec.to_builtins(answer))
    else:
        for line in _lines(answer):
            print(line)
    if isinstance(answer, SubmissionVariantsView):
        return 0 if any(each.answer.starts for each in answer.variants) else _NEVER
    return 0 if answer.starts else _NEVER


def _answered(
    arguments: argparse.Namespace,
    documents: tuple[SubmittedObject, ...],
    options: Mapping[str, Sequence[str]],
) -> SubmissionView | SubmissionVariantsView:
    """The answer of the daemon, else one that is decided here."""
    choice = connection_choice(arguments)
    namespace = arguments.namespace or (
        "default" if arguments.snapshot else default_namespace(choice)
    )
    config = configuration(arguments.config)
    if arguments.snapshot and arguments.source == "daemon":
        raise UsageError("a file is not what the daemon tells: leave out --source daemon")
    if arguments.snapshot:
        print_notes([f"{ONLY_GIVEN_LIMITS}: a snapshot has none"])
    else:
        ranges, unread = with_cluster(choice, lambda api: limit_ranges(api, documents, namespace))
        print_notes(unread)
        documents += ranges
        source = ViewSource(chosen=arguments.source, election=config.leader_election)
        raw = "\n---\n".join(json.dumps(each.obj) for each in documents).encode()
        told, notes = with_cluster(
            choice, lambda api: ask_when(api, source, raw, namespace=namespace, options=options)
        )
        print_notes(notes)
        if told is not None:
            return _with_places(told, documents)
    # Sessions and solver take a second to import, which who asks a daemon does not need.
    here = import_module("gpusched.cli.inspect.ask.decide_here")
    answer: SubmissionView | SubmissionVariantsView = here.when_here(
        arguments, config, documents, namespace=namespace, options=options
    )
    return answer


def _with_places(
    answer: SubmissionView | SubmissionVariantsView, documents: Sequence[SubmittedObject]
) -> SubmissionView | SubmissionVariantsView:
    """The daemon's answer with the places in our files: it was sent one document in every other line."""
    answer = with_remark(
        answer, ONLY_GIVEN_LIMITS, present=False
    )  # it was sent those of the cluster
    if isinstance(answer, SubmissionVariantsView):
        return answer
    refused = []
    for each in answer.refused:
        line = each.place.rpartition(":")[2]
        number = (int(line) - 1) // 2 if line.isdigit() else len(documents)
        place = documents[number].place if number < len(documents) else each.place
        refused.append(msgspec.structs.replace(each, place=place))
    return msgspec.structs.replace(answer, refused=tuple(refused))


def _split_values(texts: Sequence[str]) -> tuple[str, ...]:
    """Values of an option that is given as ``a,b``, once or several times."""
    return tuple(each.strip() for text in texts for each in text.split(",") if each.strip())


def _lines(answer: SubmissionView | SubmissionVariantsView) -> Iterator[str]:
    if isinstance(answer, SubmissionVariantsView):
        return variant_lines(answer)
    return submission_lines(answer)


def _documents(names: list[str]) -> Iterator[SubmittedObject]:
    """The manifests of all files, in the order given.

    Raises:
        ConfigError: a file cannot be used.
    """
    for name in names:
        if name == "-":
            yield from read_manifests(
                sys.stdin.buffer.read(MANIFEST_BYTES_MAX + 1), "standard input"
            )
            continue
        path = Path(name)
        files = [path]
        if path.is_dir():
            files = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
            if not files:
                raise ConfigError(f"{name}: holds no file that ends in {', '.join(_SUFFIXES)}")
        for file in files:
            yield from read_manifests(read_file(str(file), most=MANIFEST_BYTES_MAX), str(file))
