"""`kernelyard.author.watch` in this very process, as in a notebook."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from kernelyard.author import Watch, watch
from kernelyard.errors import BuildError, InputError, LoadError

pytestmark = [pytest.mark.compile, pytest.mark.torch]

Sample = Callable[[str], Path]


@pytest.fixture
def project(sample: Sample, store_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("torch")
    monkeypatch.setenv("KERNELYARD_CACHE", str(store_root))
    project = sample("tiny")
    package = project / "torch-ext" / "tiny"
    (package / "__init__.py").write_text("from . import _ops\n\n\ndef name():\n    return _ops.ops.name\n", "utf-8")
    (package / "late.py").write_text("LATE = 1\n", "utf-8")
    return project


@pytest.fixture
def kernel(project: Path) -> Iterator[Watch]:
    with watch(project, interval=0.05) as kernel:
        yield kernel


def edit(project: Path, old: str, new: str, name: str = "csrc/answer.cpp") -> None:
    path = project / name
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def test_a_save_gives_a_new_module_and_the_old_one_goes_on_working(project: Path, kernel: Watch) -> None:
    old = kernel.module
    assert kernel.wait(60) is old
    edit(project, "21", "22")
    new = kernel.wait(60)
    assert new is kernel.module
    assert new.__name__ != old.__name__
    assert (old.name(), new.name()) == (old.__name__, new.__name__)
    edit(project, "LATE = 1", "LATE = 2", "torch-ext/tiny/late.py")
    newest = kernel.wait(60)
    # What a module imports later is still what it was built with.
    late = [import_module(f"{module.__name__}.late").LATE for module in (old, new, newest)]
    assert late == [1, 1, 2]


def test_what_was_loaded_before_is_the_module_that_it_was(project: Path, kernel: Watch) -> None:
    first = kernel.module
    edit(project, "21", "23")
    assert kernel.wait(60) is not first
    edit(project, "23", "21")
    assert kernel.wait(60) is first


def test_a_mistake_leaves_the_newest_good_module_until_it_is_mended(project: Path, kernel: Watch) -> None:
    good = kernel.module
    edit(project, "21;", "21")
    with pytest.raises(BuildError, match="expected ';'"):
        kernel.wait(60)
    assert isinstance(kernel.error, BuildError)
    assert kernel.module is good
    assert "BuildError" in repr(kernel)
    edit(project, "21", "21;")
    assert kernel.wait(60) is good
    assert kernel.error is None


def test_a_kernel_that_cannot_be_imported_is_an_error_too(project: Path, kernel: Watch) -> None:
    edit(
        project,
        "from . import _ops",
        "from . import _ops\nraise ValueError('not like this')",
        "torch-ext/tiny/__init__.py",
    )
    with pytest.raises(LoadError, match="not like this"):
        kernel.wait(60)


def test_a_first_build_that_fails_is_told_and_followed(project: Path) -> None:
    edit(project, "21;", "21")
    with watch(project, interval=0.05) as kernel:
        assert isinstance(kernel.error, BuildError)
        with pytest.raises(BuildError):
            _ = kernel.module
        edit(project, "21", "21;")
        assert kernel.wait(60).name() == kernel.module.__name__


def test_several_threads_may_wait_and_ask(project: Path, kernel: Watch) -> None:
    edit(project, "21", "24")
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(kernel.wait(60).name())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [kernel.module.__name__] * 8


def test_after_closing_nothing_is_built_any_more(project: Path) -> None:
    kernel = watch(project, interval=0.05)
    module = kernel.module
    kernel.close()
    kernel.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "watch tiny"]
    edit(project, "21", "25")
    assert kernel.wait(60) is module
    assert module.name() == module.__name__
    assert repr(kernel).startswith("<stopped ")


def test_a_kernel_for_another_torch_is_refused_with_what_it_wants(project: Path) -> None:
    edit(project, 'stable-abi = "2.11"', 'maxver = "2.10"', "build.toml")
    with watch(project) as kernel:
        assert isinstance(kernel.error, LoadError)
        assert kernel.error.code == "KY751"
        assert "It wants torch 2.10.0" in kernel.error.what


def test_a_path_that_leads_nowhere_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises((InputError, OSError)):
        watch(tmp_path / "nowhere")


def test_a_process_that_does_not_close_ends_and_leaves_nothing(project: Path, environment: dict[str, str]) -> None:
    program = (
        "from kernelyard.author import watch\n"
        f"kernel = watch({str(project)!r})\n"
        "print(kernel.module.name(), next(kernel._folder.iterdir()).is_dir())\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.startswith("_tiny_cpu_")
    assert done.stdout.endswith(" True\n")
    assert list(project.joinpath(".kernelyard", "watch").iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next(project: Path, kernel: Watch) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    folder = project / ".kernelyard" / "watch"
    left = folder / f"{gone.pid}-abc"
    left.mkdir()
    with watch(project, interval=0.05) as other:
        assert not left.exists()
        assert other.module is kernel.module
    assert kernel._folder.is_dir()
