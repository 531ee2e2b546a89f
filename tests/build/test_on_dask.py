"""Building on the workers of a real cluster of dask: what is sent, what runs there, and what is taken back."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernelyard import __version__
from kernelyard.build.costs import Cost, Costs
from kernelyard.build.group import group_by_toolkit
from kernelyard.build.progress import Snapshot
from kernelyard.build.project import build_project, selected
from kernelyard.build.remote.address import Cluster, is_protected
from kernelyard.build.remote.own_wheel import own_wheel
from kernelyard.build.remote.returned import Part, receive, worker_failure
from kernelyard.build.remote.shipment import Shipment, pack_sources
from kernelyard.build.remote.worker import _packed, _run
from kernelyard.build.source_state import SourceState
from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, VerificationError
from kernelyard.hub.folder import FolderHub
from kernelyard.project.sources import read_project
from kernelyard.toolchain.parts import PartSource

distributed = pytest.importorskip("distributed")

from kernelyard.build.remote import on_dask  # noqa: E402 - needs distributed
from kernelyard.build.remote.on_dask import _needs, _workers, build_on_cluster  # noqa: E402 - needs distributed

Sample = Callable[[str], Path]

CPU = "torch-stable-abi211-cpu-x86_64-linux"
#: A worker that has nothing of ours: to import it fails there, as it does where it is not installed.
WORKER = "import sys; sys.modules['kernelyard'] = None; from distributed.cli.dask_worker import main; main()"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def commit_all(folder: Path) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@b.c")
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "all"]):
        subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


# What is sent


def shipment(root: Path, source: PartSource) -> Shipment:
    project = read_project(root)
    plans = [plan for group in group_by_toolkit(project, selected(project, source, ()), ()) for plan in group]
    return pack_sources(project, plans)


def names(shipped: Shipment) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(shipped.archive)) as archive:
        return [member.name for member in archive if member.isreg()]


def test_what_the_build_needs_is_sent_and_nothing_else(sample: Sample, source: PartSource) -> None:
    root = sample("tiny")
    (root / "tests").mkdir()
    (root / "tests" / "test_it.py").write_text("")
    (root / "weights.bin").write_bytes(b"\0" * 1000)
    (root / "csrc" / "by_macro.h").write_text("")
    shipped = shipment(root, source)
    assert shipped.folder == "."
    assert names(shipped) == [
        "build.toml",
        "csrc/answer.cpp",
        "csrc/answer.cu",
        "csrc/answer.h",
        "csrc/by_macro.h",
        "csrc/other.cpp",
        "torch-ext/binding.cpp",
        "torch-ext/tiny/__init__.py",
    ]


def test_headers_of_any_name_are_found_in_the_include_folders(sample: Sample, source: PartSource) -> None:
    root = sample("tiny")
    (root / "more" / "deep").mkdir(parents=True)
    (root / "more" / "Thing").write_text('#include "deep/../deep/Part"\n')
    (root / "more" / "deep" / "Part").write_text("")
    (root / "more" / "Other").write_text("")
    edit(root / "build.toml", 'include = ["csrc"]\nstable-abi', 'include = ["csrc", "more"]\nstable-abi')
    binding = root / "torch-ext" / "binding.cpp"
    binding.write_text("#include <Thing>\n" + binding.read_text())
    sent = [name for name in names(shipment(root, source)) if name.startswith("more")]
    assert sent == ["more/Thing", "more/deep/Part"]


def test_the_same_sources_are_the_same_bytes(sample: Sample, source: PartSource, tmp_path: Path) -> None:
    root = sample("tiny")
    copy = shutil.copytree(root, tmp_path / "elsewhere" / "tiny")
    os.utime(copy / "build.toml", (1, 1))
    assert shipment(copy, source).archive == shipment(root, source).archive


def test_neighbours_in_the_repository_are_sent_along(sample: Sample, source: PartSource) -> None:
    root = sample("tiny")
    beside = root.parent / "beside"
    beside.mkdir()
    (beside / "far.h").write_text('#include "nearer/next.h"\n')
    (beside / "nearer").mkdir()
    (beside / "nearer" / "next.h").write_text("")
    (beside / "unused.h").write_text("")
    source_file = root / "csrc" / "other.cpp"
    source_file.write_text('#include "../../beside/far.h"\n' + source_file.read_text())
    commit = commit_all(root.parent)
    shipped = shipment(root, source)
    assert shipped.folder == "tiny"
    assert [name for name in names(shipped) if name.startswith("beside")] == ["beside/far.h", "beside/nearer/next.h"]
    assert shipped.state == SourceState(commit, dirty=False)
    (beside / "far.h").write_text("")
    assert shipment(root, source).state.commit is None


def test_links_are_sent_as_what_they_lead_to(sample: Sample, source: PartSource) -> None:
    root = sample("tiny")
    (root / "csrc" / "other.cpp").rename(root / "real.cpp")
    (root / "csrc" / "other.cpp").symlink_to("../real.cpp")
    with tarfile.open(fileobj=io.BytesIO(shipment(root, source).archive)) as archive:
        member = archive.getmember("csrc/other.cpp")
        assert member.isreg()
        file = archive.extractfile(member)
        assert file is not None
        assert file.read() == (root / "real.cpp").read_bytes()


def test_kernelyard_itself_is_sent_as_a_wheel() -> None:
    wheel = own_wheel()
    assert wheel == own_wheel()
    assert wheel.name == f"kernelyard-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(io.BytesIO(wheel.content)) as archive:
        assert archive.testzip() is None
        members = archive.namelist()
        assert "kernelyard/build/project.py" in members
        assert "kernelyard/project/templates/kernelyard.cmake" in members
        assert not [name for name in members if "__pycache__" in name]
        record = archive.read(f"kernelyard-{__version__}.dist-info/RECORD").decode()
        assert [line.partition(",")[0] for line in record.splitlines()] == members
        assert b"Provides-Extra: build" in archive.read(f"kernelyard-{__version__}.dist-info/METADATA")
    constraints = dict(line.split("==") for line in wheel.constraints.splitlines())
    assert {"click", "ninja", "cmake", "requests", "urllib3"} <= constraints.keys()
    assert not {"kernelyard", "ruff", "mypy", "distributed"} & constraints.keys()


# Where it is sent


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("dask://127.0.0.1:8786", "tcp://127.0.0.1:8786"),
        ("dask://localhost:1", "tcp://localhost:1"),
        ("dask://[::1]:8786/", "tcp://[::1]:8786"),
        ("dask://10.0.0.7:8786", "tls://10.0.0.7:8786"),
        ("dask://localhost.example.org:8786", "tls://localhost.example.org:8786"),
        ("dask://127.0.0.1.example.org:8786", "tls://127.0.0.1.example.org:8786"),
    ],
)
def test_tls_is_used_everywhere_but_on_this_machine(url: str, address: str) -> None:
    assert Cluster.parse(url).address == address
    assert is_protected(address)
    assert is_protected(address.replace("tls://", "tcp://")) == address.startswith("tcp://")


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8786", "tcp://127.0.0.1:8786", "dask://host", "dask://u@host:1", "dask://h:0"]
)
def test_what_is_no_cluster_is_refused(url: str) -> None:
    with pytest.raises(InputError) as caught:
        Cluster.parse(url)
    assert caught.value.code == "KY451"


def test_without_certificates_nothing_is_sent_to_another_machine(sample: Sample, source: PartSource) -> None:
    with pytest.raises(InputError) as caught:
        build_on_cluster(sample("tiny"), "dask://192.0.2.1:8786", source=source)
    assert caught.value.code == "KY452"
    assert "DASK_DISTRIBUTED__COMM__TLS__CA_FILE" in caught.value.hint


class FakeClient:
    """Answers what a cluster is made of, where no real one can be: on other machines, with another Python."""

    def __init__(self, workers: dict[str, str]) -> None:
        self._workers = workers

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1
        return {"workers": {address: {} for address in self._workers}}

    def get_versions(self, *, check: bool) -> dict[str, Any]:
        assert not check
        told = {address: {"host": {"python": python}} for address, python in self._workers.items()}
        return {"client": {"host": {"python": "3.11.7.final.0"}}, "workers": told}


@pytest.mark.parametrize(
    ("workers", "error", "code"),
    [
        ({}, EnvironmentProblemError, "KY453"),
        ({"tcp://127.0.0.1:1": "3.11.2.final.0", "tcp://10.1.1.1:1": "3.11.2.final.0"}, InputError, "KY452"),
        ({"tls://10.1.1.1:1": "3.12.2.final.0"}, EnvironmentProblemError, "KY454"),
    ],
)
def test_a_cluster_that_tasks_cannot_be_sent_to_is_refused(
    workers: dict[str, str], error: type[KernelyardError], code: str
) -> None:
    with pytest.raises(error) as caught:
        _workers(FakeClient(workers), Cluster.parse("dask://127.0.0.1:1"))
    assert caught.value.code == code
    fit = {"tls://10.1.1.1:1": "3.11.2.final.0", "tcp://127.0.0.1:1": "3.11.9.final.0"}
    assert list(_workers(FakeClient(fit), Cluster.parse("dask://127.0.0.1:1"))) == list(fit)


def test_a_part_asks_for_the_memory_of_its_hungriest_source(sample: Sample, source: PartSource) -> None:
    project = read_project(sample("tiny"))
    plans = {
        plan.name: plan for group in group_by_toolkit(project, selected(project, source, ()), ()) for plan in group
    }
    parts = [Part(1, (CPU,)), Part(2, tuple(name for name in plans if "cu130" in name))]
    assert _needs(project.root, parts, plans, {"a": {}}) == {1: {}, 2: {}}
    workers: dict[str, dict[str, Any]] = {
        "a": {"resources": {"MEMORY": 64e9, "GPU": 1}},
        "b": {"resources": {"MEMORY": 3e9}},
        "c": {"resources": {}},
    }
    assert _needs(project.root, parts, plans, workers) == {1: {"MEMORY": float(5 << 29)}, 2: {"MEMORY": float(4 << 30)}}
    costs = Costs(project.root / ".kernelyard" / "costs.json")
    costs.record(f"cpu/CMakeFiles/kernel.tiny_cpu.dir{project.root}/csrc/answer.cpp.o", Cost(8_000_000_000, 1.0))
    (project.root / ".kernelyard").mkdir()
    costs.save()
    assert _needs(project.root, parts, plans, workers)[1] == {"MEMORY": 8.8e9}
    small = {"b": {"resources": {"MEMORY": 3e9}}}
    assert _needs(project.root, parts, plans, small)[2] == {"MEMORY": 3e9}


# What comes back


def answer_of(built: Path) -> dict[str, Any]:
    """Return what a worker would answer that has built a project."""
    archive = _packed(built / "build")
    hub = FolderHub.find(built)
    assert hub is not None
    result = [{"variant": entry.name, "digest": entry.digest, "compiled": 4} for entry in hub.index.variants]
    return {"archive": archive, "sha256": hashlib.sha256(archive).hexdigest(), "result": json.dumps(result)}


def received(root: Path, answer: dict[str, Any]) -> list[str]:
    state = SourceState("a" * 40, dirty=False)
    return [one.name for one in receive(read_project(root), Part(1, (CPU,)), answer, "tcp://w:1", state)]


def test_what_comes_back_is_put_into_build_with_the_state_of_the_sources(sample: Sample, built_tiny: Path) -> None:
    root = sample("tiny")
    assert received(root, answer_of(built_tiny)) == [CPU]
    before, after = contents(built_tiny / "build" / CPU), contents(root / "build" / CPU)
    documents = [json.loads(files.pop("metadata.json")) for files in (before, after)]
    assert after == before
    assert documents[1]["kernelyard"].pop("source-commit") == "a" * 40
    assert documents[1]["kernelyard"]["made"].pop("dirty") is False
    del documents[0]["kernelyard"]["source-commit"], documents[0]["kernelyard"]["made"]["dirty"]
    assert documents[1] == documents[0]
    assert list((root / ".kernelyard" / "aside").iterdir()) == []
    assert [path.name for path in (root / ".kernelyard").iterdir() if path.is_dir()] == ["aside"]


def with_file(answer: dict[str, Any], name: str, content: bytes) -> dict[str, Any]:
    packed = io.BytesIO(answer["archive"])
    with tarfile.open(fileobj=packed, mode="a") as archive:
        about = tarfile.TarInfo(name)
        about.size = len(content)
        archive.addfile(about, io.BytesIO(content))
    return answer | {"archive": packed.getvalue(), "sha256": hashlib.sha256(packed.getvalue()).hexdigest()}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda answer: answer | {"sha256": "0" * 64}, "what came back is not what was sent"),
        (lambda answer: with_file(answer, f"{CPU}/more.py", b""), "this file does not belong here"),
        (lambda answer: with_file(answer, "../../evil.py", b""), "what came back cannot be read"),
        (lambda answer: with_file(answer, "/tmp/evil.py", b""), "what came back cannot be read"),
        (lambda answer: answer | {"result": answer["result"].replace('"digest": "', '"digest": "0')}, "another digest"),
        (lambda answer: answer | {"result": "[]"}, "other variants came back"),
        (lambda answer: answer | {"result": "{}]"}, "not what `build --json` prints"),
        (lambda answer: answer | {"archive": b"x", "sha256": hashlib.sha256(b"x").hexdigest()}, "cannot be read"),
    ],
)
def test_what_is_not_what_was_built_stays_out(
    change: Callable[[dict[str, Any]], dict[str, Any]], what: str, sample: Sample, built_tiny: Path
) -> None:
    root = sample("tiny")
    with pytest.raises(VerificationError) as caught:
        received(root, change(answer_of(built_tiny)))
    assert (caught.value.code, caught.value.exit_code) == ("KY441", 4)
    assert what in str(caught.value)
    assert not (root / "build").exists()
    assert not list(root.rglob("evil.py"))


def test_a_failure_to_make_the_environment_shows_what_pip_said(tmp_path: Path) -> None:
    answer = {"status": 1, "step": "environment", "said": "ERROR: No matching distribution found for click==8\n"}
    error = worker_failure(answer, tmp_path, Part(1, (CPU,)), "tcp://w:1")
    assert (error.code, error.exit_code) == ("KY455", 3)
    assert "ERROR: No matching distribution found for click==8" in str(error)


def test_a_command_ends_with_the_worker_that_ran_it(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    program = (
        "import sys; from pathlib import Path; from kernelyard.build.remote.worker import _run;"
        "_run(['/bin/sh', '-c', 'exec 9>' + sys.argv[1] + '; sleep 60; echo late >&9'], Path('/'), lambda _: None)"
    )
    worker = subprocess.Popen([sys.executable, "-c", program, alive])
    with alive.open("rb") as open_until_it_ends:
        worker.kill()
        assert open_until_it_ends.read() == b""
    assert worker.wait() == -signal.SIGKILL


def test_a_command_tells_its_status_and_what_it_said(tmp_path: Path) -> None:
    heard: list[str] = []
    command = ["/bin/sh", "-c", "echo out; echo one >&2; echo two >&2; cat; exit 7"]
    assert _run(command, tmp_path, heard.append) == (7, "one\ntwo\n", "out\n")
    assert heard == ["one", "two"]
    with pytest.raises(RuntimeError, match="was killed by signal 9"):
        _run(["/bin/sh", "-c", "kill -9 $$"], tmp_path, heard.append)


# A cluster


@dataclass(frozen=True)
class Running:
    """A cluster: its address for `--on`, the scheduler's process, and that of each worker by its address."""

    url: str
    scheduler: subprocess.Popen[bytes]
    workers: dict[str, subprocess.Popen[bytes]]


@contextmanager
def cluster(folder: Path, environment: dict[str, str], count: int, *, host: str = "127.0.0.1") -> Iterator[Running]:
    folder.mkdir(parents=True, exist_ok=True)
    tls = host != "127.0.0.1"
    processes: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        with (folder / f"{len(processes)}.log").open("wb") as log:
            processes.append(
                subprocess.Popen([sys.executable, *arguments], env=environment, stdout=log, stderr=log, cwd=folder)
            )
        return processes[-1]

    try:
        told = folder / "scheduler.json"
        listen = ("--protocol", "tls") if tls else ("--host", "127.0.0.1")
        start(
            "-m",
            "distributed.cli.dask_scheduler",
            *listen,
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            str(told),
        )
        workers = {}
        for number in range(count):
            name = str(number)
            workers[name] = start(
                *("-c", WORKER, "--scheduler-file", str(told), "--no-nanny", "--nthreads", "1", "--no-dashboard"),
                *("--name", name, "--local-directory", str(folder / name), "--resources", "MEMORY=8e9"),
                *(("--protocol", "tls") if tls else ("--host", "127.0.0.1")),
            )
        with distributed.Client(scheduler_file=str(told), set_as_default=False, timeout=60) as client:
            client.wait_for_workers(count, timeout=60)
            by_address = {
                address: workers[str(about["name"])]
                for address, about in client.scheduler_info(n_workers=-1)["workers"].items()
            }
            port = client.scheduler.address.rpartition(":")[2]
        yield Running(f"dask://{host}:{port}", processes[0], by_address)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def worker_environment(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of workers, which keep what they install for all tests of a run."""
    return environment | {"KERNELYARD_WORKER_HOME": str(tmp_path_factory.mktemp("workers"))}


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def two_workers(worker_environment: dict[str, str], tmp_path: Path) -> Iterator[Running]:
    with cluster(tmp_path / "cluster", worker_environment, 2) as running:
        yield running


def built_here(root: Path, source: PartSource, copy: Path) -> dict[str, bytes]:
    shutil.copytree(root, copy)
    build_project(copy, source=source, variants=["*-cpu-*"], cached=False)
    return contents(copy / "build")


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.slow
def test_a_cluster_builds_what_this_machine_would(
    two_workers: Running, sample: Sample, source: PartSource, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = sample("blend")
    commit = commit_all(root)
    snapshots: list[Snapshot] = []
    with caplog.at_level(logging.INFO, logger="kernelyard.build"):
        built = build_on_cluster(
            root, two_workers.url, source=source, variants=["*-cpu-*"], cached=False, watch=snapshots.append
        )
    order = [f"torch21{minor}-cxx11-cpu-x86_64-linux" for minor in range(1, 6)]
    assert [variant.name for variant in built] == order
    assert {variant.work.compiled for variant in built} == {5}
    assert contents(root / "build") == built_here(root, source, tmp_path / "here")
    assert json.loads((root / "build" / "index.json").read_bytes())["source-commit"] == commit
    assert (snapshots[-1].finished, snapshots[-1].total) == (5, 5)
    told = [message for message in caplog.messages if ": building " in message]
    assert sorted(message.partition(": building ")[0] for message in told) == sorted(two_workers.workers)
    assert sorted(name for message in told for name in message.partition(": building ")[2].split(", ")) == order


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.slow
def test_what_a_lost_worker_had_is_built_on_another(
    two_workers: Running, sample: Sample, source: PartSource, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = sample("blend")
    lost: list[str] = []

    def kill_one(snapshot: Snapshot) -> None:
        for running in snapshot.running:
            address, _, doing = running.what.rpartition(": ")
            if not lost and doing == "building":
                lost.append(address)
                two_workers.workers[address].kill()

    with caplog.at_level(logging.INFO, logger="kernelyard.build"):
        built = build_on_cluster(
            root, two_workers.url, source=source, variants=["*-cpu-*"], cached=False, watch=kill_one
        )
    assert len(built) == 5
    (other,) = two_workers.workers.keys() - set(lost)
    again = [message for message in caplog.messages if " again, " in message]
    assert len(again) == 1
    assert again[0].startswith(f"{other}: building torch2")
    assert contents(root / "build") == built_here(root, source, tmp_path / "here")


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "what"), [("workers", "all workers are lost"), ("scheduler", "the scheduler is lost")]
)
def test_a_cluster_that_is_lost_is_not_waited_for_forever(
    *,
    which: str,
    what: str,
    two_workers: Running,
    sample: Sample,
    source: PartSource,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(on_dask, "_LOOK_S", 0.1)
    monkeypatch.setattr(on_dask, "_PATIENCE_S", 1.0)

    def kill_all(_: Snapshot) -> None:
        for process in two_workers.workers.values() if which == "workers" else [two_workers.scheduler]:
            process.kill()

    with pytest.raises(EnvironmentProblemError) as caught:
        build_on_cluster(sample("lookup"), two_workers.url, source=source, watch=kill_all)
    assert (caught.value.code, caught.value.what) == ("KY456", what)


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.slow
def test_a_failure_on_a_worker_is_shown_as_one_here(
    two_workers: Running, sample: Sample, source: PartSource, tmp_path: Path
) -> None:
    root = sample("tiny")
    edit(root / "csrc" / "answer.cpp", "return", "retrun")
    here = shutil.copytree(root, tmp_path / "here")
    with pytest.raises(KernelyardError) as local:
        build_project(here, source=source, variants=["*-cpu-*"])
    with pytest.raises(KernelyardError) as remote:
        build_on_cluster(root, two_workers.url, source=source, variants=["*-cpu-*"])
    assert (remote.value.code, remote.value.exit_code) == ("KY411", local.value.exit_code)
    expected = str(local.value).replace(str(here / ".kernelyard"), str(root / ".kernelyard" / "workers" / "1"))
    said, _, on = str(remote.value).rpartition("\n  on ")
    assert said == expected.replace(str(here), str(root))
    assert on in two_workers.workers
    log = root / ".kernelyard" / "workers" / "1" / "cpu" / "build.log"
    assert "retrun" in log.read_text()
    assert not (root / "build").exists()


@pytest.mark.network
@pytest.mark.slow
def test_an_interruption_here_ends_the_build_there(
    two_workers: Running, sample: Sample, program: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    root = sample("tiny")
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    (root / "endless.py").write_text(
        f"import time\nwith open({str(alive)!r}, 'w') as file:\n    time.sleep(60)\n    file.write('late')\n"
    )
    made = 'src = ["csrc/answer.cpp", "made.h"]\n\n[[kernel.tiny_cpu.generate]]\ncommand = ["python", "endless.py"]\n'
    edit(
        root / "build.toml",
        'src = ["csrc/answer.cpp", "csrc/other.cpp", "csrc/answer.h"]\ninclude = ["csrc"]\n',
        f'{made}outputs = ["made.h"]\n',
    )
    command = [str(program), "build", str(root), "--variant", "*-cpu-*", "--on", two_workers.url]
    build = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with alive.open("rb") as open_until_it_ends:
        build.send_signal(signal.SIGINT)
        _, said = build.communicate()
        assert build.returncode == 130
        assert said.endswith("kernelyard: interrupted; nothing half-made was left behind\n")
        assert open_until_it_ends.read() == b""


@pytest.mark.network
@pytest.mark.slow
def test_a_locked_build_takes_nothing_that_earlier_tasks_left(
    worker_environment: dict[str, str], sample: Sample, source: PartSource, tmp_path: Path
) -> None:
    from kernelyard.build.toolchain_lock import make_lock, write_lock

    root = sample("lookup")
    write_lock(root, make_lock(root, source))
    here = shutil.copytree(root, tmp_path / "here")
    build_project(here, source=source, locked=True)
    home = tmp_path / "home"
    environment = worker_environment | {"KERNELYARD_WORKER_HOME": str(home)}
    with cluster(tmp_path / "cluster", environment, 1) as running:
        build_on_cluster(root, running.url, source=source, locked=True)
    assert contents(root / "build") == contents(here / "build")
    assert json.loads((root / "build" / "index.json").read_bytes())["toolchain-lock"] is not None
    assert [path.name for path in home.rglob("*") if path.is_file()] == ["lock"]


@pytest.mark.network
@pytest.mark.slow
def test_a_cluster_elsewhere_is_reached_by_tls(
    worker_environment: dict[str, str],
    sample: Sample,
    source: PartSource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = socket.gethostname()
    try:
        socket.gethostbyname(host)
    except OSError:
        pytest.skip("this machine does not know its own name")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=cluster", "-days", "2"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    prefix = "DASK_DISTRIBUTED__COMM__TLS__"
    settings = {f"{prefix}CA_FILE": str(certificate)}
    for role in ("CLIENT", "SCHEDULER", "WORKER"):
        settings |= {f"{prefix}{role}__CERT": str(certificate), f"{prefix}{role}__KEY": str(key)}
    import dask

    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    dask.config.refresh()
    try:
        root = sample("lookup")
        with cluster(tmp_path / "cluster", worker_environment | settings, 1, host=host) as running:
            assert [address.partition("://")[0] for address in running.workers] == ["tls"]
            built = build_on_cluster(root, running.url, source=source)
        assert [variant.name for variant in built] == ["torch-cpu", "torch-cuda", "torch-rocm"]
    finally:
        monkeypatch.undo()
        dask.config.refresh()
