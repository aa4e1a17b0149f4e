"""Who answers questions beside the daemon? A process of its own, which copies the cluster when it is asked."""

from __future__ import annotations

import json
from typing import Final

from gpusched.io.serve.answers.question_process import AnsweringProgram

_ANSWERING: Final = "gpusched.advice.service.answering:answer_questions"


def answering_program(kubeconfig: str | None, config_file: str) -> AnsweringProgram:
    """The program that answers about a cluster.

    Args:
        kubeconfig: as for the daemon.
        config_file: the daemon's; empty for none.
    """
    options = {"kubeconfig": kubeconfig, "config_file": config_file}
    return AnsweringProgram(_ANSWERING, json.dumps(options))
