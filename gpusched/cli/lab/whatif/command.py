"""``gpusched what-if``: the cluster as it is and changed, played side by side from the same moment."""

from __future__ import annotations

import argparse
import sys

from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.errors import UsageError
from gpusched.cli.command import (
    Subparsers,
    add_config,
    add_kubeconfig,
    add_output,
    named_path,
    print_json,
)
from gpusched.cli.inspect.cluster_reader import configuration
from gpusched.cli.lab.whatif.answer import answer_json, answer_lines, compared_rows
from gpusched.cli.lab.whatif.inputs import WhatIfQuestion, add_input_options, read_question
from gpusched.cli.lab.whatif.requested_changes import add_change_options
from gpusched.config.load import load_file
from gpusched.engine.run_record import RunRecord
from gpusched.io.observe.process_limits import collect_garbage_rarely
from gpusched.lab.report.run_report import ComparisonNotes, RunReport
from gpusched.lab.report.write_report import write_compared
from gpusched.lab.whatif.outcome import Outcome, compare_outcomes, without_running_jobs
from gpusched.lab.whatif.play import play_cluster


def register(subparsers: Subparsers) -> None:
    """Add the command to the parser."""
    parser = subparsers.add_parser(
        "what-if",
        description="Play the cluster as it is and a changed one side by side from the same moment, with the daemon's "
        "own decisions, and say what differs: waits, fairness, evictions, use, and for whom. Nothing is "
        "written to the cluster (docs/what-if.md).",
        epilog="gpusched what-if --drain rack=r7 --from 22:00 --for 2h --set queue/research.deserved=128",
    )
    add_input_options(parser)
    add_change_options(parser)
    parser.add_argument(
        "--new-config", metavar="FILE", help="change: another configuration of the daemon"
    )
    parser.add_argument(
        "--top", type=int, default=10, metavar="N", help="gangs that are listed (10)"
    )
    parser.add_argument(
        "--report", type=named_path, metavar="DIR", help="write a page and CSV there"
    )
    add_kubeconfig(parser)
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Answer; 1 when an invariant did not hold in a play or a plugin failed.

    Raises:
        UsageError: changes that cannot be understood or contradict each other.
        ConfigError: a file cannot be used.
        ClusterUnreachable: no cluster.
        Denied: the cluster may not be read.
    """
    if arguments.top < 0:
        raise UsageError("--top takes a number from 0 on")
    config = configuration(arguments.config)
    other = load_file(arguments.new_config) if arguments.new_config else None
    if other is not None and other.gpu_resources.main.name != config.gpu_resources.main.name:
        raise UsageError(
            f"--new-config begins gpuResources with {other.gpu_resources.main.name}, the configuration "
            f"of now with {config.gpu_resources.main.name}: the same gangs cannot be compared"
        )
    collect_garbage_rarely(plays=True)  # what happened in the plays stays
    with gpu_resources_in_force(config.gpu_resources):
        question = read_question(arguments, config, other)
        records = [
            play_cluster(question.given, each) for each in (question.unchanged, question.changed)
        ]
        outcome = compare_outcomes(*records)
        _write_page(arguments, question, outcome, records)
    if arguments.output == "json":
        print_json(answer_json(question, outcome, records))
    else:
        for line in answer_lines(question, outcome, records, top=arguments.top):
            print(line)
    return int(any(record.broken or record.unfinished for record in records))


def _write_page(
    arguments: argparse.Namespace,
    question: WhatIfQuestion,
    outcome: Outcome,
    records: list[RunRecord],
) -> None:
    if arguments.report is None:
        return
    notes = ComparisonNotes(
        sentences={
            "What if": question.changes,
            "What follows": outcome.sentences,
            "What is assumed": (question.source, *question.assumptions),
        },
        figures=compared_rows(outcome),
        waited=[without_running_jobs(each) for each in records],
    )
    reported = [RunReport(record=each, config=each.name) for each in records]
    index = write_compared(
        arguments.report, reported, title=f"What if {question.changes[0]}", notes=notes
    )
    print(f"report: {index}", file=sys.stderr)
