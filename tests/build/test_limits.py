"""How much memory and how many processes are left, of machines that are written down as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelyard.build.limits import Limits

GIB = 1 << 30


def machine(root: Path, files: dict[str, str]) -> Limits:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Limits(root)


def meminfo(available: int) -> str:
    return f"MemTotal:       99999999 kB\nMemFree:           12345 kB\nMemAvailable:   {available // 1024} kB\n"


def test_this_machine() -> None:
    available = Limits().memory_available()
    assert available is not None
    assert available > 64 << 20


def test_without_control_groups(tmp_path: Path) -> None:
    limits = machine(tmp_path, {"proc/meminfo": meminfo(7 * GIB)})
    assert (limits.memory_available(), limits.memory_limit(), limits.processes_left()) == (7 * GIB, None, None)


def test_nothing_is_known(tmp_path: Path) -> None:
    assert machine(tmp_path, {}).memory_available() is None


def test_the_smallest_limit_above_counts_and_what_can_be_freed_is_not_used(tmp_path: Path) -> None:
    limits = machine(
        tmp_path,
        {
            "proc/meminfo": meminfo(64 * GIB),
            "proc/self/cgroup": "0::/user.slice/job\n",
            "sys/fs/cgroup/user.slice/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/user.slice/memory.current": f"{5 * GIB}\n",
            "sys/fs/cgroup/user.slice/memory.stat": f"anon 1\ninactive_file {GIB}\nactive_file 77\n",
            "sys/fs/cgroup/user.slice/pids.max": "100\n",
            "sys/fs/cgroup/user.slice/pids.current": "30\n",
            "sys/fs/cgroup/user.slice/job/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/job/memory.current": f"{GIB}\n",
            "sys/fs/cgroup/user.slice/job/pids.max": "max\n",
        },
    )
    assert (limits.memory_available(), limits.memory_limit(), limits.processes_left()) == (4 * GIB, 8 * GIB, 70)


def test_the_machine_may_have_less_than_the_limit(tmp_path: Path) -> None:
    limits = machine(
        tmp_path,
        {
            "proc/meminfo": meminfo(2 * GIB),
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/memory.current": "0\n",
        },
    )
    assert limits.memory_available() == 2 * GIB


@pytest.mark.parametrize("name", ["/docker/0123", "/"])
def test_version_1_in_a_container_that_sees_its_own_group_alone(tmp_path: Path, name: str) -> None:
    limits = machine(
        tmp_path,
        {
            "proc/meminfo": meminfo(64 * GIB),
            "proc/self/cgroup": f"9:name=systemd:/\n8:pids:{name}\n4:cpu,memory:{name}\n0::{name}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{3 * GIB}\n",
            "sys/fs/cgroup/memory/memory.stat": "inactive_file 5\ntotal_inactive_file 4096\n",
            "sys/fs/cgroup/pids/pids.max": "max\n",
            "sys/fs/cgroup/unified/cgroup.procs": "1\n",
        },
    )
    assert (limits.memory_available(), limits.memory_limit(), limits.processes_left()) == (GIB + 4096, 4 * GIB, None)


def test_no_limit_is_a_number_in_version_1(tmp_path: Path) -> None:
    limits = machine(
        tmp_path,
        {
            "proc/meminfo": meminfo(GIB),
            "proc/self/cgroup": "4:memory:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
        },
    )
    assert (limits.memory_available(), limits.memory_limit()) == (GIB, None)


def test_more_than_the_limit_may_be_used(tmp_path: Path) -> None:
    limits = machine(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": "100\n",
            "sys/fs/cgroup/memory.current": "120\n",
        },
    )
    assert limits.memory_available() == 0
