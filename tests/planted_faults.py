"""Faults planted in the source, one or more a package, and which test finds each.

``python tests/planted_faults.py`` copies the commit that is checked out to a folder of its own,
changes one line of it at a time, runs the tests named beside the change until one fails, and
prints the table of docs/tests.md. First it runs all of them on the copy as it is. Words select
faults by file: ``python tests/planted_faults.py session/preempt``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs

ENDLESS_S = 1200
"""Seconds after which tests are taken to hang, which finds a fault as well."""
ROOT = Path(__file__).resolve().parents[1]


@attrs.frozen
class PlantedFault:
    """One line that is changed.

    Attributes:
        file: below ``gpusched/``, or of the shipped plugins.
        sound: text that stands in the file once.
        broken: what is put in its place.
        tests: files and folders below ``tests/`` of which one is to fail.
    """

    file: str
    sound: str
    broken: str
    tests: str


FAULTS = [
    PlantedFault(*each)
    for each in [
        ("gpusched/arrays/shared_gpus.py", "(after > 0) - (before > 0)", "(after > 1) - (before > 1)", "placement/test_shared_gpus.py session/allocate/test_gpu_shares.py"),
        ("gpusched/topology/slot_choice.py", "free.bit_count() < count", "free.bit_count() <= count", "topology"),
        ("gpusched/topology/numa_admission.py", "sum(known) < amount", "sum(known) <= amount", "topology session/state/test_numa_sessions.py"),
        ("gpusched/cache/ledger.py", "if unknown.get(gpu, 0) <= 0:", "if unknown.get(gpu, 0) < 0:", "session/state/test_whose_slots.py session/allocate/test_gpu_shares.py"),
        ("gpusched/placement/greedy.py", "if 0 < got < part.least:", "if 0 < got <= part.least:", "placement session/allocate/test_sub_groups.py"),
        ("gpusched/placement/model/verify.py", "int(counts[list(roles)].sum()) < least", "int(counts[list(roles)].sum()) > least", "placement"),
        ("gpusched/session/allocate/gang_repair.py", "sum(made <= last for made in waiting)", "sum(made > last for made in waiting)", "session/allocate/test_was_whole.py"),
        ("gpusched/session/allocate/gang_repair.py", "session.snapshot.is_after(since + session.snapshot.limits", "not session.snapshot.is_after(since + session.snapshot.limits", "session/allocate/test_gang_life.py"),
        ("gpusched/session/preempt/preemption_plans.py", "if not since or now <= since:", "if not since or now > since:", "session/preempt/test_preempt.py session/state/test_promises.py"),
        ("gpusched/session/preempt/claims/claim_runs.py", "if grows == (amount > 0):", "if grows != (amount > 0):", "session/preempt/test_claim_runs.py"),
        ("gpusched/placement/victims/free_amounts.py", "if any(min(each) < 0", "if any(min(each) > 0", "session/preempt/test_swaps.py"),
        ("gpusched/session/preempt/claims/claimant_class.py", "if pod_set.role == role) < missing:", "if pod_set.role == role) > missing:", "session/preempt/test_preempt.py"),
        ("gpusched/session/preempt/victims.py", "len(seats) > self._left", "len(seats) < self._left", "session/preempt/test_victim_sub_groups.py session/preempt/test_victims_cheapest.py"),
        ("gpusched/session/rebalance/consolidation.py", "drawn.count(n) > self._victims.left[n]", "drawn.count(n) < self._victims.left[n]", "session/rebalance/test_consolidate.py"),
        ("gpusched/session/status/gang_status.py", "if missing > waiting[role]:", "if missing < waiting[role]:", "session/allocate/test_gangs.py session/status"),
        ("gpusched/session/status/next_wakeup.py", "if end > snapshot.now", "if end < snapshot.now", "session/status/test_due.py"),
        ("gpusched/session/state/decided/moved_gangs.py", "if member.pod.created < move.at:", "if member.pod.created > move.at:", "session/rebalance/test_consolidate.py"),
        ("gpusched/session/backfill/start_sweep.py", "any(reservation.start > self._time for", "any(reservation.start < self._time for", "session/backfill/test_backfill.py"),
        ("gpusched/commit/observed_pod.py", "LOST if self.deleting or self.gated else", "LOST if self.deleting and self.gated else", "commit"),
        ("gpusched/commit/recover.py", "gang.seems_lost and not", "gang.seems_lost or not", "commit"),
        ("gpusched/commit/machine.py", "d.reachable >= d.old.gang.min_member", "d.reachable > d.old.gang.min_member", "commit"),
        ("gpusched/leader/lease_machine.py", "state.phase in LEADER and state.valid_until.seconds_left(event.at) <= 0", "state.phase in LEADER and state.valid_until.seconds_left(event.at) > 0", "leader"),
        ("gpusched/io/client/responses.py", "200 <= self.status < 300", "200 <= self.status < 400", "io/test_answers.py"),
        ("gpusched/io/write/events/event_recorder.py", "if self._queued > limits.EVENT_QUEUE_MAX:", "if self._queued < limits.EVENT_QUEUE_MAX:", "io/commit/test_status_writer.py"),
        ("gpusched/io/cycle/bind_backoff.py", "if known.times < limits.BIND_FREE_FAILURES:", "if known.times > limits.BIND_FREE_FAILURES:", "daemon/commit/test_repeated_refusals.py"),
        ("gpusched/io/decisions/entity_codec.py", "            if type(number) is not int or number < 0", "            if type(number) is not int or number > 0", "io/test_graph_codec.py"),
        ("gpusched/config/values.py", "\n    if not low <= value <= high:", "\n    if not low <= value < high:", "config"),
        ("gpusched/config/read.py", "cycle.debounce_s >= cycle.max_period_s", "cycle.debounce_s < cycle.max_period_s", "config"),
        ("gpusched/pluginhost/guard.py", "self.in_a_row >= PLUGIN_FAULTS_MAX", "self.in_a_row > PLUGIN_FAULTS_MAX", "plugins/host/test_guard.py"),
        ("gpusched/devcluster/apimachinery/metadata.py", "if total > _ANNOTATIONS_MAX:", "if total < _ANNOTATIONS_MAX:", "devcluster/server/writes"),
        ("gpusched/cel/standard.py", "(a < 0) == (b < 0)", "(a < 0) != (b < 0)", "devcluster/pure/test_cel_language.py"),
        ("gpusched/devcluster/stages/matching.py", "(jitter, jitter) if jitter <= base", "(jitter, jitter) if jitter > base", "devcluster/stages devcluster/controllers/test_stage_play.py"),
        ("gpusched/devcluster/registry/policy/limit_ranges.py", "parse_amount(value[low]) > parse_amount(value[high])", "parse_amount(value[low]) < parse_amount(value[high])", "devcluster/server/rules/test_limit_ranges.py"),
        ("gpusched/devcluster/storage/store.py", "if change.version <= version:", "if change.version < version:", "devcluster/server/kinds/test_store_history.py devcluster/server/watch"),
        ("gpusched/lab/scenario/file/timeline.py", "role.min_member > role.pods", "role.min_member < role.pods", "lab/scenario/test_read_short.py"),
        ("gpusched/lab/simulate/traces/workload.py", "if gpus <= 0:", "if gpus < 0:", "engine"),
        ("gpusched/lab/report/plots/svg.py", "    if rest < 60:", "    if rest > 60:", "lab/report"),
        ("gpusched/lab/report/plots/gantt_layout.py", "free_at.get(row, 0.0) <= since", "free_at.get(row, 0.0) <= since + 1", "lab/report"),
        ("gpusched/api/meta/quantity.py", "if value > QUANTITY_MAX:", "if value >= QUANTITY_MAX:", "api/test_amounts.py"),
        ("gpusched/api/devices/gpu_share.py", "self.memory > gpu_memory", "self.memory < gpu_memory", "api/test_decode_shares.py session/allocate/test_gpu_shares.py"),
        ("gpusched/base/clock.py", "return self._epoch + self.monotonic()", "return self._epoch - self.monotonic()", "lab/simulate/test_virtual_loop.py"),
        ("gpusched/cache/queues/checks.py", "if sums + amount <= limit:", "if sums + amount < limit:", "session/queues/test_queue_tree.py"),
        ("gpusched/cache/verify/placements.py", "+ amount > node.allocatable", "+ amount >= node.allocatable", "session/state/test_recheck.py"),
        ("gpusched/placement/victims/loss_limits.py", "if any(_lost_amount(lost, account, column) > amount for", "if any(_lost_amount(lost, account, column) < amount for", "placement/test_victims.py session/preempt/test_least_loss.py"),
        ("gpusched/placement/pipeline/certificates.py", "if there < needed:\n            resource = _short_of", "if there > needed:\n            resource = _short_of", "placement/test_feasibility.py"),
        ("gpusched/session/admission/admission_age.py", "if not gang.succeeded and snapshot.is_after(over):", "if not gang.succeeded and not snapshot.is_after(over):", "session/allocate/test_suspended_jobs.py"),
        ("gpusched/session/containment/set_aside.py", "elif mark != each.mark or snapshot.now >= each.again:", "elif mark != each.mark or snapshot.now < each.again:", "session/containment/test_containment.py"),
        ("gpusched/session/containment/failing_hooks.py", "return self._failing_gangs() <= blame.gangs", "return self._failing_gangs() >= blame.gangs", "session/containment/test_failing_hooks.py"),
        ("gpusched/session/framework/hook_calls.py", "            if self.concerns_class(pod_set.pod_class):\n                return self._check(gang)", "            if not self.concerns_class(pod_set.pod_class):\n                return self._check(gang)", "session/allocate/test_volumes.py"),
        ("gpusched/actions/allocate.py", "if gang.pending < gang.missing_members:", "if gang.pending > gang.missing_members:", "session/allocate/test_gang_life.py session/allocate/test_gangs.py"),
        ("gpusched/io/watch/reflector.py", "if len(items) > limits.OBJECTS_PER_KIND_MAX:", "if len(items) < limits.OBJECTS_PER_KIND_MAX:", "io/test_reflector.py"),
        ("gpusched/io/workers/rate_limiter.py", "if self._tokens < 1.0 or now < self._paused_until:", "if self._tokens < 1.0 and now < self._paused_until:", "io/test_pace.py"),
        ("gpusched/cli/inspect/explaining/explanation.py", "        if minimum > 1\n", "        if minimum < 1\n", "cli/test_explain.py"),
        ("gpusched/testing/invariants/gangs.py", "if len(domains) > 1:", "if len(domains) > 2:", "lab/chaos/test_invariants_of_objects.py"),
        ("gpusched/app/daemon.py", 'degraded: {degraded}" if degraded else part', 'degraded: {degraded}" if not degraded else part', "daemon/containment/test_broken_plugins.py"),
        ("gpusched/devcluster/controllers/jobs/sync.py", "if self.newly_failed and self.failed > limit:", "if self.newly_failed and self.failed >= limit:", "devcluster/controllers"),
        ("plugins/eviction/conformance.py", "_highest_priority(victim) >= SYSTEM", "_highest_priority(victim) > SYSTEM", "session/preempt/test_victim_rules.py"),
        ("plugins/eviction/lifetime.py", "if not limit or not view.is_past(", "if not limit or view.is_past(", "session/allocate/test_gang_life.py"),
        ("plugins/eviction/minruntime.py", "and not view.is_past(", "and view.is_past(", "session/preempt/test_victim_rules.py session/preempt/test_preempt.py"),
        ("plugins/order/gang.py", "gang.ready_members <= gang.min_member", "gang.ready_members < gang.min_member", "session/queues/test_queue_turns.py"),
        ("plugins/order/walltime.py", "if len(runs) >= _RUNS_MIN", "if len(runs) > _RUNS_MIN", "session/backfill/test_backfill.py"),
        ("plugins/queues/usage.py", "amount * left >> BITS if amount >= 0", "amount * left >> BITS if amount < 0", "plugins"),
        ("plugins/nodes/predicates/topology_spread.py", "- least <= asked.term.max_skew", "- least < asked.term.max_skew", "session/framework/test_pod_rules.py"),
        ("plugins/order/sla.py", "if due and view.is_past(due)", "if due and not view.is_past(due)", "session/queues/test_shares_in_sessions.py"),
        ("plugins/queues/fairshare/reclaim_rules.py", "* their_due >= theirs * due * PERCENT", "* their_due < theirs * due * PERCENT", "session/queues/test_reclaim_gates.py"),
    ]
]  # fmt: skip


def _tests_that_fail(folder: Path, tests: str) -> str:
    """The first test that fails, or nothing; the worst of all is that none ran."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
             *(f"tests/{each}" for each in tests.split())],
            cwd=folder, capture_output=True, text=True, check=False, timeout=ENDLESS_S,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder), "PYTHONHASHSEED": "0"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"tests that do not end in {ENDLESS_S} s"
    found = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[| |$)", done.stdout, re.MULTILINE)
    if found is None and done.returncode:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return found[1] if found else ""


def _copy(folder: Path) -> None:
    """The commit that is checked out, with its plugins under the name by which they are imported."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
    (folder / "gpusched_plugins").symlink_to("plugins")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Plant each fault, one at a time; 1 when one is not found or nothing was sound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of file names; all faults unless given")
    parser.add_argument("--planted-only", action="store_true", help="not on the sound copy first")
    options = parser.parse_args()
    chosen = [
        fault
        for fault in FAULTS
        if not options.words or any(word in fault.file for word in options.words)
    ]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        folder = Path(name)
        _copy(folder)
        named = dict.fromkeys(each for fault in chosen for each in fault.tests.split())
        if not options.planted_only and (wrong := _tests_that_fail(folder, " ".join(named))):
            _tell(f"without a fault {wrong} fails already")
            return 1
        for fault in chosen:
            path = folder / fault.file
            text = path.read_text(encoding="utf-8")
            if text.count(fault.sound) != 1:
                _tell(f"| `{fault.file}` | `{fault.sound}` | is not there once | |")
                missed += 1
                continue
            path.write_text(text.replace(fault.sound, fault.broken), encoding="utf-8")
            found = _tests_that_fail(folder, fault.tests)
            path.write_text(text, encoding="utf-8")
            missed += not found
            shown = f"`{found.removeprefix('tests/')}`" if found else "not found"
            _tell(
                f"| `{fault.file}` | `{fault.sound.strip()}` | `{fault.broken.strip()}` | {shown} |",
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
