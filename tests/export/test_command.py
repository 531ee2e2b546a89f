"""The command `to-wheel`: what it is asked for, what it prints, and where the wheels go."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard.errors import InputError
from kernelyard.export.package_index import write_index
from kernelyard.hub import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.lock.written import one_at_a_time
from tests.conftest import Command
from tests.hub.public_kernels import EXAMPLES, written

EXAMPLE = {example.name: example for example in EXAMPLES}
UNIVERSAL, CPU, CUDA = "torch-universal", "torch-cpu", "torch-cuda"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with three built variants and a licence."""
    for variant in (UNIVERSAL, CPU, CUDA):
        written(replace(EXAMPLE["relu"], variant=variant), "0", tmp_path / "relu")
    cuda = tmp_path / "relu" / "build" / CUDA / "metadata.json"
    cuda.write_text(cuda.read_text().replace('"type": "cpu"', '"type": "cuda"'))
    (tmp_path / "relu" / "LICENSE").write_text("the licence")
    return tmp_path / "relu"


@pytest.fixture
def hub(project: Path, tmp_path: Path) -> Path:
    """A hub with release 1.1.2 of it, which was withdrawn, and 1.2.0."""
    hub = StaticHub(DirectoryReader(tmp_path / "hub"))
    for release in ("1.1.2", "1.2.0"):
        build = written(replace(EXAMPLE["relu"], variant=CPU), release.replace(".", ""), project)
        hub.publish(Publication("org/relu", replace(build.index, release=release), build.files, "v1"))
    hub.yank("org/relu", "1.1.2", "it is slow")
    return tmp_path / "hub"


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_release_of_a_hub_becomes_a_wheel_for_each_variant(kernelyard: Command, hub: Path, tmp_path: Path) -> None:
    done = kernelyard("to-wheel", "org/relu", "1.2.0", "--hub", hub, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = [f"relu-1.2.0{label}-py3-none-any.whl" for label in ("+torchcpu", "+torchcuda", "")]
    assert files(tmp_path / "dist") == sorted(names)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["wheel", *names]
    assert done.stderr == f"packing {CPU}\npacking {CUDA}\npacking {UNIVERSAL}\n"


def test_as_data_it_is_all_that_a_script_needs(kernelyard: Command, hub: Path, tmp_path: Path) -> None:
    target = tmp_path / "there"
    done = kernelyard(
        "to-wheel",
        "org/relu",
        ">=1.2",
        "--hub",
        hub,
        "--dest",
        target,
        "--variant",
        "*-cpu",
        "--name",
        "org-relu",
        "--json",
    )
    answer = json.loads(done.stdout)
    (wheel,) = answer.pop("wheels")
    path = target / "org_relu-1.2.0+torchcpu-py3-none-any.whl"
    assert answer.pop("revision")
    assert answer == {"repo": "org/relu", "release": "1.2.0", "left-out": []}
    assert wheel == {
        "variant": CPU,
        "file": str(path),
        "size": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "name": "org-relu",
        "version": "1.2.0+torchcpu",
        "import": "relu",
        "tags": "py3-none-any",
        "requires": ["torch"],
        "requires-python": ">=3.9",
    }


def test_a_folder_is_the_release_that_the_user_says(kernelyard: Command, project: Path, tmp_path: Path) -> None:
    for version, expected in (
        (("1.4.0",), "1.4.0"),
        (("1",), "1.0.0.dev0+g[0-9a-f]{12}"),
        ((), "1.0.0.dev0+g[0-9a-f]{12}"),
    ):
        done = kernelyard("to-wheel", project, *version, "--dest", tmp_path, "--variant", UNIVERSAL, "--json")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert re.fullmatch(expected.replace("+", r"\+"), answer["wheels"][0]["version"])
        assert answer["repo"] is None
    for wrong in ("2.0.0", "1.4", "fast"):
        done = kernelyard("to-wheel", project, wrong, "--dest", tmp_path / "none")
        assert done.returncode == 2
        assert "[KY805]" in done.stderr
    assert not (tmp_path / "none").exists()


def test_the_licence_of_a_project_is_in_its_wheels(kernelyard: Command, project: Path, tmp_path: Path) -> None:
    kernelyard("to-wheel", project, "1.4.0", "--dest", tmp_path / "dist", "--variant", UNIVERSAL)
    shutil.unpack_archive(tmp_path / "dist" / "relu-1.4.0-py3-none-any.whl", tmp_path / "out", format="zip")
    assert (tmp_path / "out" / "relu-1.4.0.dist-info" / "licenses" / "LICENSE").read_text() == "the licence"


def test_an_index_keeps_what_was_put_into_it_before(kernelyard: Command, hub: Path, tmp_path: Path) -> None:
    root = tmp_path / "index"
    for release in ("1.1.2", "1.2.0"):
        done = kernelyard("to-wheel", "org/relu", release, "--hub", hub, "--index", root, "--variant", "*-cpu")
        assert done.returncode == 0, done.stderr
    wheels = [f"relu-{release}+torchcpu-py3-none-any.whl" for release in ("1.1.2", "1.2.0")]
    expected = ["simple/index.html", "simple/relu/index.html"]
    expected += [f"simple/relu/{wheel}{ending}" for wheel in wheels for ending in ("", ".metadata")]
    assert files(root) == sorted(expected)
    page = (root / "simple" / "relu" / "index.html").read_text()
    for wheel in wheels:
        digest = hashlib.sha256((root / "simple" / "relu" / wheel).read_bytes()).hexdigest()
        metadata = hashlib.sha256((root / "simple" / "relu" / f"{wheel}.metadata").read_bytes()).hexdigest()
        assert f'<a href="{wheel.replace("+", "%2B")}#sha256={digest}" data-requires-python="&gt;=3.9"' in page
        assert f'data-core-metadata="sha256={metadata}"' in page
        assert f">{wheel}</a>" in page
    assert '<a href="relu/">relu</a>' in (root / "simple" / "index.html").read_text()
    before = {path: (root / path).read_bytes() for path in files(root)}
    kernelyard("to-wheel", "org/relu", "1.2.0", "--hub", hub, "--index", root, "--variant", "*-cpu")
    assert before == {path: (root / path).read_bytes() for path in files(root)}


def test_wheels_can_go_to_a_folder_and_an_index(kernelyard: Command, hub: Path, tmp_path: Path) -> None:
    root, name = tmp_path / "index", "Org.Relu"
    command = ("to-wheel", "org/relu", "1", "--hub", hub, "--index", root, "--dest", tmp_path / "dist", "--name", name)
    assert kernelyard(*command).returncode == 0
    assert len(files(tmp_path / "dist")) == 3
    for wheel in files(tmp_path / "dist"):
        assert (root / "simple" / "org-relu" / wheel).read_bytes() == (tmp_path / "dist" / wheel).read_bytes()


def test_a_file_in_the_index_that_is_no_wheel_is_named(tmp_path: Path) -> None:
    (tmp_path / "simple" / "relu").mkdir(parents=True)
    (tmp_path / "simple" / "relu" / "relu-1-py3-none-any.whl").write_bytes(b"cut off")
    with pytest.raises(InputError, match=r"relu-1-py3-none-any\.whl") as caught:
        write_index(tmp_path)
    assert caught.value.code == "KY807"


def test_a_withdrawn_release_is_converted_and_told_of(kernelyard: Command, hub: Path, tmp_path: Path) -> None:
    done = kernelyard("to-wheel", "org/relu", "1.1.2", "--hub", hub, "--dest", tmp_path / "dist")
    assert done.returncode == 0
    assert "org/relu v1.1.2 was withdrawn: it is slow\n" in done.stderr


def test_what_no_wheel_can_be_made_of_is_told_and_the_status_says_so(
    kernelyard: Command, project: Path, tmp_path: Path
) -> None:
    file = project / "build" / CPU / "metadata.json"
    depends = [{"repo-id": "org/other", "version": 1}]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"kernel-depends": depends}))
    done = kernelyard("to-wheel", project, "1.2.0", "--dest", tmp_path / "dist", "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert [one["variant"] for one in answer["wheels"]] == [CUDA, UNIVERSAL]
    assert [one["variant"] for one in answer["left-out"]] == [CPU]
    assert f"no wheel of {CPU}: the variant asks the loader for other kernels" in done.stderr


def test_what_has_not_the_name_of_a_variant_becomes_no_wheel(
    kernelyard: Command, project: Path, tmp_path: Path
) -> None:
    shutil.copytree(project / "build" / CPU, tmp_path / "result")
    done = kernelyard("to-wheel", tmp_path / "result", "--dest", tmp_path / "dist")
    assert done.returncode == 1
    assert "[KY801]" in done.stderr
    assert "result: not the name of a variant" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("org/relu",), 2, "name a version"),
        (("org/relu", "1", "--variant", "*-cpu", "--this-machine"), 2, "not both"),
        (("org/relu", "1", "--variant", "*-rocm"), 1, "KY801"),
        (("org/relu", "1", "--name", "no name"), 2, "KY802"),
        (("org/relu", "9"), 1, "KY501"),
        (("org/relu", "1", "--revision", "v1"), 2, "KY505"),
    ],
)
def test_what_cannot_be_is_refused_with_the_next_step(
    kernelyard: Command, hub: Path, tmp_path: Path, *, arguments: tuple[str, ...], status: int, said: str
) -> None:
    done = kernelyard("to-wheel", *arguments, "--hub", hub, "--dest", tmp_path / "dist")
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "dist").exists()


def test_a_folder_without_variants_is_told(kernelyard: Command, tmp_path: Path) -> None:
    done = kernelyard("to-wheel", tmp_path)
    assert (done.returncode, "[KY607]" in done.stderr) == (1, True)


def test_a_place_that_cannot_be_written_is_told(kernelyard: Command, hub: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = kernelyard("to-wheel", "org/relu", "1", "--hub", hub, "--dest", tmp_path / "file")
    assert done.returncode == 3
    assert "[KY302]" in done.stderr
    assert "name with --dest" in done.stderr


@pytest.mark.torch
def test_this_machine_means_the_variant_that_would_be_loaded(
    kernelyard: Command, hub: Path, project: Path, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("which is another one where there is a GPU")
    for what in (("org/relu", "1", "--hub", hub), (project, "1.2.0")):
        done = kernelyard("to-wheel", *what, "--this-machine", "--dest", tmp_path / "dist")
        assert done.returncode == 0, done.stderr
        assert files(tmp_path / "dist") == ["relu-1.2.0+torchcpu-py3-none-any.whl"]


def test_an_index_that_another_process_writes_is_waited_for(
    kernelyard: Command,
    hub: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))
    assert kernelyard("to-wheel", "org/relu", "1.2.0", "--hub", hub, "--dest", tmp_path).returncode == 0
    (tmp_path / "index/simple/relu").mkdir(parents=True)
    writes_or_waits = threading.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "another process is at work on" in record.getMessage():
                writes_or_waits.set()

    def write() -> None:
        write_index(tmp_path / "index")
        writes_or_waits.set()

    logger, told = logging.getLogger("kernelyard.lock"), Told()
    # Not by the attribute: a logger keeps what it found out of its level for other tests.
    caplog.set_level(logging.INFO, logger.name)
    logger.addHandler(told)
    try:
        writer = threading.Thread(target=write)
        with one_at_a_time(tmp_path / "index"):
            writer.start()
            assert writes_or_waits.wait(60)
            for wheel in tmp_path.glob("*.whl"):
                shutil.copy(wheel, tmp_path / "index/simple/relu")
        writer.join()
    finally:
        logger.removeHandler(told)
    assert (tmp_path / "index/simple/relu/index.html").read_text().count("#sha256=") == 3
