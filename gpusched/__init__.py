"""gpusched: a gang scheduler for AI jobs that runs beside kube-scheduler.

Everything in this package is mechanism: how pods are read, placed, bound and explained.
Whose job goes first is policy and lives in the separate package ``gpusched_plugins``.
"""

__version__ = "0.2.0"
API_VERSION = "scheduling.gpusched.io/v1alpha1"
