"""The error tree. An expected outcome is a value; an exception is a fault.

``GpuschedError`` carries one sentence for the person who has to act on it. The command line
maps each branch to an exit status (see ``docs/`` and the table of commands in the README).
"""

from __future__ import annotations


class GpuschedError(Exception):
    """Any fault that gpusched names itself; ``str()`` is one sentence for its user."""

    exit_status = 70


class ConfigError(GpuschedError):
    """The configuration cannot be used; the sentence holds file, line and the known keys.

    Attributes:
        problems: every sentence that could be said about it; ``str()`` is the first.
    """

    exit_status = 78

    def __init__(self, *problems: str) -> None:
        super().__init__(problems[0])
        self.problems = problems


class UsageError(GpuschedError):
    """The command line cannot be understood or names something that does not exist."""

    exit_status = 2


class NotInstalled(GpuschedError):
    """A command's distribution here, or a kind in the cluster, is not installed; the sentence says how to install it."""

    exit_status = 78


class ClusterUnreachable(GpuschedError):
    """No answer from the API server, or no way in."""

    exit_status = 69


class PluginFault(GpuschedError):
    """A plugin raised or answered with something its hook does not allow."""

    def __init__(self, plugin: str, hook: str, why: str) -> None:
        super().__init__(f"plugin {plugin} failed in hook {hook}: {why}")
        self.plugin = plugin
        self.hook = hook
        self.why = why


class SolverFault(GpuschedError):
    """The solver crashed, refused its model or gave an answer that does not verify."""


class InvariantBroken(GpuschedError):
    """Our own bookkeeping contradicts itself.

    The story is dumped; found by the machine of a commit, it ends the process.
    """


class Fenced(GpuschedError):
    """This process may no longer write: it lost the lease or could outlive it."""


class ApiError(GpuschedError):
    """An answer of the API server that is not success.

    Attributes:
        status: HTTP status, 0 when there was no answer.
        reason: the ``reason`` of the Status body, empty when absent.
    """

    exit_status = 69

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class Conflict(ApiError):
    """409: the object is not as we believed; read it back before trying again."""


class Gone(ApiError):
    """410: the asked version is no longer known; list again."""


class NotFound(ApiError):
    """HTTP status 404: the object or kind is not there."""


class Denied(ApiError):
    """401 or 403: the API server answers, and says no. The sentence says which right is missing."""

    exit_status = 77


class Throttled(ApiError):
    """429 of server overload (never of a disruption budget).

    Attributes:
        retry_after_s: seconds the server asked to wait, 0 when it did not say.
    """

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message, status=429, reason="TooManyRequests")
        self.retry_after_s = retry_after_s


class BudgetRefused(ApiError):
    """429 of an eviction that a PodDisruptionBudget forbids."""


class OutcomeUnknown(ApiError):
    """A write whose effect is not known (5xx, timeout, reset): read back before anything else."""


class UndecodableObject(GpuschedError):
    """Bytes from the API server that are not the JSON document that was asked for."""


def is_defect(error: BaseException) -> bool:
    """Whether the error is a fault of gpusched itself, not an answer that it has a name for."""
    return isinstance(error, InvariantBroken) or not isinstance(error, GpuschedError)
