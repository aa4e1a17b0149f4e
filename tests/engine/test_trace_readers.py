"""Traces are read strictly: holes are counted and told with their places, nothing is guessed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpusched.base.errors import ConfigError
from gpusched.engine.simulation import SimulationCase, run_simulation
from gpusched.lab.simulate.traces.csv_jobs import read_csv_jobs
from gpusched.lab.simulate.traces.generator import WEEK_S, GeneratorOptions, generate_jobs
from gpusched.lab.simulate.traces.openb import (
    QUEUE,
    hosts_as_nodes,
    read_hosts,
    read_requests,
    read_timed,
    timed_pod_arrivals,
)
from gpusched.lab.simulate.traces.philly import read_philly
from gpusched.lab.simulate.traces.rows import RowReader
from gpusched.lab.simulate.traces.workload import gpu_shares, pods_of, queue_manifests
from tests.engine.engine_cases import QUICK

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces"
NODES = """sn,cpu_milli,memory_mib,gpu,model
n-0,64000,262144,2,P100
n-1,64000,262144,0,
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p-0,4000,1024,1,460,,LS,Running,100,400,100
p-1,4000,1024,1,1000,P100|T4,BE,Succeeded,110,210,111
p-2,4000,1024,0,0,,LS,Pending,120,180,
"""


def written(folder: Path, name: str, text: str) -> Path:
    """A file."""
    path = folder / name
    path.write_text(text)
    return path


def attempt(start: str | None, end: str | None, gpus: int = 1, ip: str = "m1") -> dict[str, Any]:
    """One attempt of a Philly job."""
    detail = [{"ip": ip, "gpus": [f"gpu{number}" for number in range(gpus)]}]
    return {"start_time": start, "end_time": end, "detail": detail}


def philly(ident: str, *attempts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One Philly job."""
    job = {
        "jobid": ident,
        "vc": "ee9e8c",
        "user": "ce2f4c",
        "status": "Pass",
        "submitted_time": "2017-10-07 01:00:00",
        "attempts": list(attempts),
    }
    return {**job, **more}


GOOD = attempt("2017-10-07 01:00:10", "2017-10-07 01:10:10", 8)


def test_a_philly_job_has_the_gpus_and_the_time_of_its_attempts(tmp_path: Path) -> None:
    """Two attempts together are its run; its virtual cluster is its queue; machines are told."""
    second = attempt("2017-10-07 02:00:00", "2017-10-07 02:00:50", 8, ip="m2")
    late = philly("app_2", GOOD, submitted_time="2017-10-07 02:00:00")
    path = written(tmp_path, "log", json.dumps([late, philly("app_1", GOOD, second)]))
    log = read_philly(path)
    first, then = log.trace.jobs
    assert (first.name, first.submit_s, first.duration_s, first.gpus) == ("app-1", 0, 650, 8)
    assert (first.queue, first.user) == ("vc-ee9e8c", "ce2f4c")
    assert then.submit_s == 3600
    assert log.nodes == {"m1": 8, "m2": 8}
    assert not log.trace.counts


HOLES = [
    (philly("a"), "no attempt"),
    (philly("b", attempt(None, "2017-10-07 01:10:10")), "no start_time of an attempt"),
    (philly("c", GOOD, attempt("2017-10-07 02:00:00", "None")), "no end_time of an attempt"),
    (philly("d", attempt("2017-10-07 02:00:00", "2017-10-07 01:00:00")), "end before start"),
    (philly("e", attempt("2017-10-07 01:00:00", "2017-10-07 02:00:00", 0)), "no GPUs"),
    (philly("f", GOOD, submitted_time="today"), "submitted_time is no time"),
    (philly("g", GOOD, vc=None), "no vc"),
    ("odd", "no job"),
]


@pytest.mark.parametrize(("hole", "reason"), HOLES)
def test_holes_of_philly_are_counted_and_told_with_their_row(
    tmp_path: Path, hole: object, reason: str
) -> None:
    """The good job is kept; the bad one is named by row; strictly it is an error."""
    path = written(tmp_path, "log", json.dumps([philly("good", GOOD), hole, hole]))
    trace = read_philly(path).trace
    assert [job.name for job in trace.jobs] == ["good"]
    assert trace.counts == {reason: 2}
    assert [each.place for each in trace.passed] == [f"{path}:row 2"]
    with pytest.raises(ConfigError, match=f"{path}:row 2: "):
        read_philly(path, strict=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no JSON"),
        ("{}", "is no list of jobs"),
        ("[]", "it holds no job"),
        ('[{"jobid": 3}]', "none of its 1 rows can be used; .*:row 1: jobid is missing"),
    ],
)
def test_what_is_no_philly_log_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    """One sentence with the file."""
    with pytest.raises(ConfigError, match=says):
        read_philly(written(tmp_path, "log", text))


def test_a_csv_is_read_with_or_without_users_compressed_or_not(tmp_path: Path) -> None:
    """Times count from the earliest job, names are made where there are none."""
    text = "submit_s,duration_s,gpus,queue,user\n50,60,8,Team A,u 1\n40,30,1,b,\n"
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    first, second = read_csv_jobs(path).jobs
    assert (first.submit_s, first.queue, first.user) == (0, "b", "")
    assert (second.submit_s, second.queue, second.user) == (10, "team-a", "u-1")
    assert second.name == "job-2"


def test_holes_of_a_csv_are_told_with_their_line(tmp_path: Path) -> None:
    """Missing, negative and odd numbers are each a reason of its own."""
    text = "submit_s,duration_s,gpus,queue\n1,10,1,a\n2,-5,1,a\n3,,1,a\n4,x,1,a\n5,10,1,\n6,0,1,a\n"
    path = written(tmp_path, "jobs.csv", text)
    trace = read_csv_jobs(path)
    assert len(trace.jobs) == 1
    assert trace.counts == {
        "duration_s is negative": 1,
        "duration_s is no number": 1,
        "duration_s out of bounds": 1,
        "no duration_s": 1,
        "no queue": 1,
    }
    assert f"{path}:3" in {each.place for each in trace.passed}
    with pytest.raises(ConfigError) as raised:
        read_csv_jobs(path, strict=True)
    assert len(raised.value.problems) == 5


@pytest.mark.parametrize(("gpus", "reason"), [("0", "no GPUs"), ("1.5", "gpus is no whole number")])
def test_a_row_without_whole_gpus_is_passed_over(tmp_path: Path, gpus: str, reason: str) -> None:
    """Not rounded: it would be a job of another size."""
    text = f"submit_s,duration_s,gpus,queue\n0.5,60.9,1.0,c\n0,60,{gpus},a\n"
    path = written(tmp_path, "jobs.csv", text)
    trace = read_csv_jobs(path)
    assert [(job.gpus, job.duration_s, job.queue) for job in trace.jobs] == [(1, 60, "c")]
    assert trace.counts == {reason: 1}
    with pytest.raises(ConfigError, match=f"{path}:3: gpus is {gpus}"):
        read_csv_jobs(path, strict=True)


def test_a_pod_of_openb_with_a_part_of_a_thousandth_is_passed_over(tmp_path: Path) -> None:
    """All amounts of that trace are whole numbers."""
    path = written(tmp_path, "pods.csv", PODS.replace("1,460", "1.5,460"))
    assert read_timed(path).counts == {"num_gpu is no whole number": 1}


def test_queues_and_users_of_other_names_stay_other_ones(tmp_path: Path) -> None:
    """Texts that make the same label, that are cut to the same one, and the root's name; it is said who is called how."""
    long = "q" * 60
    queues = ["A B", "a-b", "a.b", "A B", "root", long, long + "x", "-"]
    rows = "".join(f"{at},60,1,{name},U {at % 2}.\n" for at, name in enumerate(queues))
    path = written(tmp_path, "jobs.csv", "submit_s,duration_s,gpus,queue,user\n" + rows)
    trace = read_csv_jobs(path)
    assert [job.queue for job in trace.jobs] == [
        "a-b", "a-b-2", "a-b-3", "a-b", "root-2", "q" * 50, "q" * 50 + "-2", "x",
    ]  # fmt: skip
    assert [job.user for job in trace.jobs[:3]] == ["u-0", "u-1", "u-0"]
    (remark,) = trace.remarks
    assert remark.startswith(
        "renamed, as an earlier name makes the same DNS label or it is reserved: "
    )
    assert remark.endswith(
        '"a-b" is a-b-2, queue "a.b" is a-b-3, queue "root" is root-2, and 1 more'
    )


def test_virtual_clusters_of_other_names_stay_other_ones(tmp_path: Path) -> None:
    """As queues of a CSV do."""
    jobs = [philly("a", GOOD, vc="X 1"), philly("b", GOOD, vc="x-1")]
    trace = read_philly(written(tmp_path, "log", json.dumps(jobs))).trace
    assert trace.queues == ("vc-x-1", "vc-x-1-2")


def test_a_csv_with_another_header_is_refused(tmp_path: Path) -> None:
    """What is missing or unknown is named, with what there may be."""
    with pytest.raises(ConfigError, match=r"jobs.csv:1: the header has no column gpus"):
        read_csv_jobs(written(tmp_path, "jobs.csv", "submit_s,duration_s,queue\n"))
    with pytest.raises(ConfigError, match="unknown column 'vc'"):
        read_csv_jobs(written(tmp_path, "jobs.csv", "submit_s,duration_s,gpus,queue,vc\n"))


def test_openb_is_read_and_played_with_its_times(tmp_path: Path) -> None:
    """Shares, GPU types and pods without GPUs run as long as they did."""
    # Given three pods of the trace's shape on its hosts
    hosts = read_hosts(written(tmp_path, "nodes.csv", NODES), all_of_them=True)
    timed = read_timed(written(tmp_path, "pods.csv", PODS))
    assert [(pod.created, pod.duration_s) for pod in timed.pods] == [(0, 300), (10, 99), (20, 60)]
    # When they are simulated
    objects = [*hosts_as_nodes(hosts), *queue_manifests({QUEUE: 0})]
    record = run_simulation(
        SimulationCase(
            name="t", config=QUICK, objects=objects, arrivals=timed_pod_arrivals(timed.pods)
        )
    )
    # Then all run to their ends, the share and the whole GPU on two slots of the host with GPUs
    assert [each.end for each in record.pods] == ["Succeeded"] * 3
    assert [each.gpus for each in record.pods] == [460, 1000, 0]
    assert {each.slots for each in record.pods[:2]} == {(0,), (1,)}
    assert not record.broken
    assert record.jobs[0].klass == "ls"


def test_openb_without_times_is_told_so(tmp_path: Path) -> None:
    """One of the published lists has requests alone; it can be filled but not played."""
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,2,1000\n"
    path = written(tmp_path, "pods.csv", text)
    assert read_requests(path)[0].demand == 2000
    with pytest.raises(ConfigError, match="no column creation_time"):
        read_timed(path)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the openb trace is not here")
def test_the_published_list_has_the_gpus_that_are_published() -> None:
    """6,212 GPUs on 1,213 hosts, and 6,086.8 GPUs asked for by 8,152 pods."""
    hosts = read_hosts(SHARED / "openb_nodes.csv.gz")
    timed = read_timed(SHARED / "openb_pods_default.csv.gz")
    assert (len(hosts), sum(host.gpus for host in hosts)) == (1213, 6212)
    assert len(timed.pods) == 8152
    assert sum(pod.request.demand for pod in timed.pods) == 6_086_800


def test_generated_jobs_have_the_published_shape_and_repeat() -> None:
    """Most jobs have one GPU, minutes to weeks, fifteen queues of unequal size, quiet nights."""
    trace = generate_jobs(GeneratorOptions(jobs=4000, days=28, seed=3))
    assert trace == generate_jobs(GeneratorOptions(jobs=4000, days=28, seed=3))
    assert trace != generate_jobs(GeneratorOptions(jobs=4000, days=28, seed=4))
    jobs = trace.jobs
    assert 0.65 < sum(job.gpus == 1 for job in jobs) / len(jobs) < 0.75
    assert max(job.gpus for job in jobs) == 128
    durations = sorted(job.duration_s for job in jobs)
    assert 600 < durations[len(jobs) // 2] < 1800
    assert 0.003 < sum(each > WEEK_S for each in durations) / len(jobs) < 0.015
    assert len(trace.queues) == 15
    of_queue = [sum(job.queue == name for job in jobs) for name in trace.queues]
    assert of_queue[0] > 5 * of_queue[-1]
    at_night = sum(3 <= job.submit_s // 3600 % 24 < 5 for job in jobs)
    at_noon = sum(14 <= job.submit_s // 3600 % 24 < 16 for job in jobs)
    assert at_noon > 2 * at_night
    assert list(jobs) == sorted(jobs, key=lambda job: (job.submit_s, job.name))


@pytest.mark.parametrize(
    ("gpus", "expected"), [(0, (1, 0)), (1, (1, 1)), (8, (1, 8)), (12, (2, 6)), (128, (16, 8)), (11, (11, 1))]
)  # fmt: skip
def test_jobs_larger_than_a_node_become_equal_pods(gpus: int, expected: tuple[int, int]) -> None:
    """As few as possible, each of a node at most."""
    assert pods_of(gpus, 8) == expected


def test_shares_of_queues_sum_up_to_the_cluster() -> None:
    """By the GPU time that was used; nobody gets nothing."""
    trace = generate_jobs(GeneratorOptions(jobs=200, days=2))
    parts = gpu_shares(trace.jobs, 100)
    assert sum(parts.values()) == 100
    assert min(parts.values()) >= 1


class Looks(set):
    """A set that counts how often it is asked about a member."""

    asked = 0

    def __contains__(self, item):
        """Whether it is a member, counted."""
        self.asked += 1
        return super().__contains__(item)


def test_equal_names_cost_no_more_than_others():
    """Given thousands of jobs of one name, and queues whose names make one label, each is looked for twice at most."""
    reader = RowReader()
    reader._taken = looks = Looks(reader._taken)
    names = [reader.name("train") for _ in range(1000)]
    labels = [reader.label("queue", "é" * number) for number in range(1, 1000)]
    assert names[:3] == ["train", "train-2", "train-3"]
    assert len(set(names)) == 1000
    assert len(set(labels)) == 999
    assert looks.asked <= 2 * 1999
