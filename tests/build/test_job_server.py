"""When compilers start: real launchers and processes that pretend to compile, on machines that are written down."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path

import pytest

from kernelyard.build.costs import Cost, Costs
from kernelyard.build.job_server import JobServer
from kernelyard.build.limits import Limits

GIB = 1 << 30
LAUNCHER = str(files("kernelyard.build") / "launcher.py")
#: Counts how many of its kind run, in a folder with a file for each, and writes the most it saw into its object.
COMPILER = """
import os, sys, time
from pathlib import Path
kind, out = sys.argv[1], Path(sys.argv[3])
folder = Path("running"); folder.mkdir(exist_ok=True)
me = folder / str(os.getpid()); me.touch()
most = 0
for _ in range(15):
    most = max(most, len(list(folder.iterdir())))
    time.sleep(0.02)
others = len(list(folder.iterdir())) - 1
me.unlink()
if kind == "error":
    print("a.cpp:3:1: error: no"); sys.exit(3)
if kind == "killed" and (others or len(list(Path().glob(out.name + ".tried*"))) == 0):
    Path(f"{out.name}.tried{os.getpid()}").touch(); os.kill(os.getpid(), 9)
if kind == "driver":
    print("g++: fatal error: Killed signal terminated program cc1plus"); sys.exit(1)
out.write_text(str(most)); print("made", out.name)
"""


def meminfo(root: Path, available: int) -> Limits:
    (root / "proc").mkdir(parents=True, exist_ok=True)
    (root / "proc/meminfo").write_text(f"MemAvailable: {available // 1024} kB\n")
    return Limits(root)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.joinpath("cpu/objects").mkdir(parents=True)
    folder.joinpath("cpu/objects/compiler.py").write_text(COMPILER)
    return folder


def start(work: Path, server: JobServer, kind: str, out: str) -> subprocess.Popen[str]:
    objects = work / "cpu/objects"
    return subprocess.Popen(
        [sys.executable, "-I", "-S", LAUNCHER, sys.executable, "compiler.py", kind, "-o", out],
        cwd=objects,
        env={"PATH": os.environ["PATH"], **server.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def compile_all(work: Path, server: JobServer, kinds: dict[str, str]) -> dict[str, tuple[int, str]]:
    started = {out: start(work, server, kind, out) for out, kind in kinds.items()}
    said = {out: process.communicate()[0] for out, process in started.items()}
    return {out: (process.returncode, said[out]) for out, process in started.items()}


def most_at_a_time(work: Path) -> int:
    return max(int(path.read_text()) for path in work.glob("cpu/objects/*.o"))


@pytest.mark.parametrize("jobs", [1, 3])
def test_as_many_as_are_allowed_run_at_a_time(work: Path, tmp_path: Path, jobs: int) -> None:
    kinds = {f"{number}.cpp.o": "good" for number in range(6)}
    with JobServer(work, Costs(work / "costs.json"), jobs=jobs, limits=meminfo(tmp_path, 64 * GIB)) as server:
        done = compile_all(work, server, kinds)
    assert done == {out: (0, f"made {out}\n") for out in kinds}
    assert most_at_a_time(work) == jobs


def test_a_source_that_nobody_knows_waits_for_memory(work: Path, tmp_path: Path) -> None:
    with JobServer(work, Costs(work / "costs.json"), jobs=4, limits=meminfo(tmp_path, 4 * GIB)) as server:
        done = compile_all(work, server, {f"{number}.cpp.o": "good" for number in range(3)})
    assert {status for status, _ in done.values()} == {0}
    assert most_at_a_time(work) == 1


def test_what_sources_took_last_time_is_remembered(work: Path, tmp_path: Path) -> None:
    kinds = {f"{number}.cpp.o": "good" for number in range(3)}
    limits = meminfo(tmp_path, 4 * GIB)
    for _ in range(2):
        with JobServer(work, Costs(work / "costs.json"), jobs=3, limits=limits) as server:
            compile_all(work, server, kinds)
    assert most_at_a_time(work) == 3
    costs = Costs(work / "costs.json")
    # An interpreter takes some megabytes.
    assert all(4 << 20 < costs.memory(f"cpu/{out}") < 200 << 20 for out in kinds)


def test_what_takes_longest_is_first(work: Path, tmp_path: Path) -> None:
    costs = Costs(work / "costs.json")
    for name, seconds in {"a.cpp.o": 3.0, "b.cpp.o": 9.0, "c.cpp.o": 5.0}.items():
        costs.record(f"cpu/{name}", Cost(1 << 20, seconds))
    with JobServer(work, costs, jobs=1, limits=meminfo(tmp_path, 64 * GIB)) as server:
        # One runs while the others ask.
        assert server.asking == 9
        first = start(work, server, "good", "first.cpp.o")
        while not list(work.glob("cpu/objects/running/*")):
            assert first.poll() is None
        compile_all(work, server, dict.fromkeys(("a.cpp.o", "b.cpp.o", "c.cpp.o"), "good"))
        first.communicate()
    made = sorted(work.glob("cpu/objects/*.o"), key=lambda path: path.stat().st_mtime_ns)
    assert [path.name for path in made] == ["first.cpp.o", "b.cpp.o", "c.cpp.o", "a.cpp.o"]


def test_of_what_nobody_knows_device_code_is_first_and_the_file_with_the_id_last(tmp_path: Path) -> None:
    costs = Costs(tmp_path / "costs.json")
    names = [
        "cu130/CMakeFiles/torch211.dir/cmake/variants/torch211/extension_name.cpp.o",
        "cu130/CMakeFiles/kernel.a.dir/p/plain.cpp.o",
        "cu130/CMakeFiles/torch211.dir/p/binding.cpp.o",
        "cu130/CMakeFiles/kernel.a.dir/p/a.cu.o",
    ]
    seconds = [costs.seconds(name) for name in names]
    assert seconds == sorted(set(seconds))


def test_one_always_runs(work: Path, tmp_path: Path) -> None:
    with JobServer(work, Costs(work / "costs.json"), jobs=2, limits=meminfo(tmp_path, 0)) as server:
        done = compile_all(work, server, {"a.cpp.o": "good", "b.cu.o": "good"})
    assert {status for status, _ in done.values()} == {0}
    assert most_at_a_time(work) == 1


def test_few_processes_are_allowed(work: Path, tmp_path: Path) -> None:
    limits = meminfo(tmp_path, 64 * GIB)
    for name, text in {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/pids.max": "40",
        "sys/fs/cgroup/pids.current": "10",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with JobServer(work, Costs(work / "costs.json"), jobs=8, limits=limits) as server:
        compile_all(work, server, {f"{number}.cpp.o": "good" for number in range(5)})
    assert most_at_a_time(work) == 2


def test_a_compiler_that_was_killed_is_tried_alone(work: Path, tmp_path: Path) -> None:
    kinds = {"big.cpp.o": "killed"} | {f"{number}.cpp.o": "good" for number in range(6)}
    with JobServer(work, Costs(work / "costs.json"), jobs=3, limits=meminfo(tmp_path, 64 * GIB)) as server:
        done = compile_all(work, server, kinds)
    assert done == {out: (0, f"made {out}\n") for out in kinds}
    assert work.joinpath("cpu/objects/big.cpp.o").read_text() == "1"
    assert len(list(work.glob("cpu/objects/big.cpp.o.tried*"))) == 1
    assert server.died_alone == frozenset()


def test_a_compiler_that_was_killed_when_it_was_alone_is_tried_at_once(work: Path, tmp_path: Path) -> None:
    with JobServer(work, Costs(work / "costs.json"), jobs=3, limits=meminfo(tmp_path, 64 * GIB)) as server:
        assert compile_all(work, server, {"big.cpp.o": "killed"}) == {"big.cpp.o": (0, "made big.cpp.o\n")}


def test_a_compiler_that_is_killed_alone_as_well(work: Path, tmp_path: Path) -> None:
    with JobServer(work, Costs(work / "costs.json"), jobs=2, limits=meminfo(tmp_path, 64 * GIB)) as server:
        done = compile_all(work, server, {"a.cpp.o": "driver", "b.cpp.o": "good"})
    assert done["a.cpp.o"] == (1, "g++: fatal error: Killed signal terminated program cc1plus\n")
    assert done["b.cpp.o"][0] == 0
    assert server.died_alone == {"cpu/a.cpp.o"}


def test_an_error_is_passed_on_and_nothing_is_learnt_of_it(work: Path, tmp_path: Path) -> None:
    costs = Costs(work / "costs.json")
    with JobServer(work, costs, jobs=2, limits=meminfo(tmp_path, 64 * GIB)) as server:
        done = compile_all(work, server, {"a.cpp.o": "error"})
    assert done == {"a.cpp.o": (3, "a.cpp:3:1: error: no\n")}
    assert costs.mean_seconds() is None


def test_a_program_that_is_not_there(work: Path, tmp_path: Path) -> None:
    with JobServer(work, Costs(work / "costs.json"), jobs=1, limits=meminfo(tmp_path, GIB)) as server:
        done = subprocess.run(
            [sys.executable, "-I", "-S", LAUNCHER, str(work / "no-compiler"), "-o", "a.o"],
            env=server.environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stdout) == (127, f"{work / 'no-compiler'}: No such file or directory\n")


def test_those_that_wait_go_when_the_builder_is_gone(work: Path, tmp_path: Path) -> None:
    with JobServer(work, Costs(work / "costs.json"), jobs=1, limits=meminfo(tmp_path, GIB)) as server:
        first = start(work, server, "good", "a.cpp.o")
        while not list(work.glob("cpu/objects/running/*")):
            assert first.poll() is None
        second = start(work, server, "good", "b.cpp.o")
    # What was compiled already is whole.
    assert first.communicate()[0] == "made a.cpp.o\n"
    assert first.returncode == 0
    assert second.communicate()[0] == "the build was stopped\n"
    assert second.returncode == 1
    assert not work.joinpath("cpu/objects/b.cpp.o").exists()


def test_a_launcher_that_is_killed_makes_room(work: Path, tmp_path: Path) -> None:
    with JobServer(work, Costs(work / "costs.json"), jobs=1, limits=meminfo(tmp_path, GIB)) as server:
        first = start(work, server, "good", "a.cpp.o")
        while not list(work.glob("cpu/objects/running/*")):
            assert first.poll() is None
        first.kill()
        first.communicate()
        second = start(work, server, "good", "b.cpp.o")
        assert second.communicate()[0] == "made b.cpp.o\n"


def test_another_torch_tells_as_much_as_the_same(tmp_path: Path) -> None:
    costs = Costs(tmp_path / "costs.json")
    costs.record("cu130/CMakeFiles/torch211.dir/p/a.cu.o", Cost(5 * GIB, 3.0))
    costs.record("cu130/CMakeFiles/torch212.dir/p/a.cu.o", Cost(6 * GIB, 5.0))
    costs.save()
    costs = Costs(tmp_path / "costs.json")
    assert costs.memory("cu130/CMakeFiles/torch211.dir/p/a.cu.o") == int(5 * GIB * 1.1)
    assert costs.memory("cu130/CMakeFiles/torch213.dir/p/a.cu.o") == int(6 * GIB * 1.1)
    assert costs.memory("cu130/CMakeFiles/torch213.dir/p/other.cu.o") == 4 * GIB
    assert costs.memory("cu130/CMakeFiles/torch213.dir/p/other.cpp.o") == 5 * GIB // 2
    assert costs.mean_seconds() == 4.0


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"format": 1}', '{"format": 9, "objects": {}}', '{"format": 1, "objects": {"a": 3}}']
)
def test_costs_that_cannot_be_read_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "costs.json").write_text(text)
    assert Costs(tmp_path / "costs.json").mean_seconds() is None


@contextmanager
def memory_group(limit: int) -> Iterator[tuple[Path, Path, Path]]:
    """Make a control group; yield it, and the files that tell the most that was used, and what was killed."""
    for mount, limit_file, peak in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max", "memory.peak"),
    ):
        group = mount / f"kernelyard-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if not (group / limit_file).exists():
                continue
            (group / limit_file).write_text(str(limit))
            yield group, group / peak, group / ("memory.oom_control" if "limit_in" in limit_file else "memory.events")
        finally:
            with suppress(OSError):
                group.rmdir()
        return
    pytest.skip("this user cannot make a control group with a limit of memory")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_ten_compilers_of_3_gb_under_a_limit_of_4_gb(work: Path) -> None:
    if (Limits().memory_available() or 0) < 5 * GIB:
        pytest.skip("this machine has less than 5 GB of memory left")
    compiler = "import sys, time; block = bytearray(3 << 30); time.sleep(0.3); open(sys.argv[3], 'w').write('done')"
    work.joinpath("cpu/objects/compiler.py").write_text(compiler)
    script = textwrap.dedent(
        f"""
        import subprocess, sys
        from pathlib import Path
        from kernelyard.build.costs import Costs
        from kernelyard.build.job_server import JobServer
        work = Path({str(work)!r})
        with JobServer(work, Costs(work / "costs.json"), jobs=10) as server:
            command = [sys.executable, "-I", "-S", {LAUNCHER!r}, sys.executable, "compiler.py", "big", "-o"]
            started = [
                subprocess.Popen([*command, f"{{number}}.cpp.o"], cwd=work / "cpu/objects", env=server.environment)
                for number in range(10)
            ]
            assert [process.wait() for process in started] == [0] * 10
        assert Costs(work / "costs.json").memory("cpu/3.cpp.o") > 3 << 30
        """
    )
    with memory_group(4 * GIB) as (group, peak, events):

        def join() -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

        subprocess.run([sys.executable, "-c", script], check=True, preexec_fn=join)
        assert dict(line.split() for line in events.read_text().splitlines())["oom_kill"] == "0"
        assert 3 * GIB < int(peak.read_text()) <= 4 * GIB
    assert {path.read_text() for path in work.glob("cpu/objects/*.o")} == {"done"}
