"""Questions that are decided in this process, on a cluster that it reads itself."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import msgspec

from gpusched.advice.advisor import advise_gang
from gpusched.advice.service.answer_view import advice_view
from gpusched.advice.service.named_gang import find_gang, missing_gang_message
from gpusched.advice.submission.answer_view import view_submission
from gpusched.advice.submission.manifests import SubmittedObject
from gpusched.advice.trial import TrialCluster
from gpusched.api.meta.gpu_resources import gpu_resources_in_force
from gpusched.base.clock import SystemClock
from gpusched.base.errors import UsageError
from gpusched.cli.act.named_objects import WantedObject
from gpusched.cli.inspect.ask.recorded_cluster import RecordedCluster, read_cluster
from gpusched.config.model import Config
from gpusched.view.over_time.advice_view import SHARDS_LEFT_OUT, AdviceView, shards_played
from gpusched.view.over_time.submission_view import (
    SubmissionVariantsView,
    SubmissionView,
    with_remark,
)


def advise_here(arguments: argparse.Namespace, config: Config, wanted: WantedObject) -> AdviceView:
    """What would let a gang start, decided here.

    Raises:
        UsageError: there is no such gang, or it runs.
        ConfigError: the file cannot be used.
        ClusterUnreachable: no cluster.
        Denied: the cluster may not be read.
    """
    cluster = read_cluster(arguments)
    with gpu_resources_in_force(config.gpu_resources):
        trial = _trial(cluster, config)
        gang = find_gang(trial, wanted.word, wanted.namespace, wanted.name)
        if gang is None:
            raise UsageError(
                missing_gang_message(trial, wanted.word, wanted.namespace, wanted.name)
            )
        answer = advice_view(advise_gang(trial, gang), gang)
    remarks = (*answer.remarks, SHARDS_LEFT_OUT) if cluster.in_shards else answer.remarks
    return msgspec.structs.replace(answer, remarks=remarks)


def _trial(cluster: RecordedCluster, config: Config) -> TrialCluster:
    return TrialCluster(
        cluster.objects, config, now=cluster.taken_at, clock=SystemClock(), board=cluster.board
    )


def when_here(
    arguments: argparse.Namespace,
    config: Config,
    documents: Sequence[SubmittedObject],
    *,
    namespace: str,
    options: Mapping[str, Sequence[str]],
) -> SubmissionView | SubmissionVariantsView:
    """When documents would start, or variants of them, decided here.

    Raises:
        UsageError: options mean nothing, or contradict each other or the documents.
        ConfigError: the file cannot be used.
        ClusterUnreachable: no cluster.
        Denied: the cluster may not be read.
    """
    cluster = read_cluster(arguments)
    with gpu_resources_in_force(config.gpu_resources):
        trial = _trial(cluster, config)
        answer = view_submission(trial, documents, options, namespace=namespace)
    remark = (
        shards_played(each.name for each in config.shards) if config.shards else SHARDS_LEFT_OUT
    )
    return with_remark(answer, remark, present=cluster.in_shards)
