from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build import generate_step
from kernelyard.build.generate_step import run_steps
from kernelyard.build.isolation import without_network
from kernelyard.build.project import build_project
from kernelyard.errors import BuildError
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.variant import VariantName
from kernelyard.hub.folder import hash_tree
from kernelyard.project.generated_files import GENERATED_FOLDER
from kernelyard.project.sources import read_project
from kernelyard.toolchain.parts import PartSource

Sample = Callable[[str], Path]

VARIANT = VariantName.parse("torch-stable-abi211-cpu-x86_64-linux")


@pytest.fixture
def made(sample: Sample) -> Path:
    return sample("made")


def run(root: Path) -> dict[str, bytes]:
    """Run the steps of a project and return what they have written, of all states."""
    run_steps(read_project(root), [VARIANT], aside=root / ".kernelyard" / "aside")
    folder = root / GENERATED_FOLDER
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {"/".join(path.relative_to(folder).parts[1:]): path.read_bytes() for path in files}


def command(root: Path, *words: str) -> None:
    """Give the project another command."""
    file = root / "build.toml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("command")]
    shown = ", ".join(f"'''{word}'''" for word in words)
    file.write_text("\n".join(line if line[:7] != "outputs" else f"command = [{shown}]\n{line}" for line in lines))


def failure(root: Path) -> BuildError:
    with pytest.raises(BuildError) as raised:
        run(root)
    assert not (root / GENERATED_FOLDER).exists() or not list((root / GENERATED_FOLDER).iterdir())
    assert list((root / ".kernelyard").glob("aside/*")) == []
    return raised.value


def test_a_step_writes_into_the_folder_of_its_state_and_not_into_the_project(made: Path) -> None:
    before = {path for path in made.rglob("*") if ".kernelyard" not in path.parts}
    assert run(made)["csrc/table.cpp"].decode().endswith("{1, 16, 25};\n")
    assert {path for path in made.rglob("*") if ".kernelyard" not in path.parts} == before


def test_a_step_runs_once_for_each_state_of_its_inputs(made: Path) -> None:
    program = made / "tools" / "squares.py"
    run(made)
    (first,) = (made / GENERATED_FOLDER).iterdir()
    when = first.joinpath("csrc", "table.h").stat().st_mtime_ns
    run(made)
    assert first.joinpath("csrc", "table.h").stat().st_mtime_ns == when
    old = program.read_text()
    program.write_text("raise SystemExit('not again')\n")
    with pytest.raises(BuildError, match="not again"):
        run(made)
    program.write_text(old)
    run(made)
    assert list((made / GENERATED_FOLDER).iterdir()) == [first]


def test_a_file_that_is_not_declared_is_not_there(made: Path) -> None:
    file = made / "build.toml"
    file.write_text(file.read_text().replace('inputs = ["csrc/*.txt"]', "inputs = []"))
    error = failure(made)
    assert error.code == "KY416"
    assert error.what.splitlines()[0].startswith(
        "the step `python tools/squares.py csrc/table.cpp csrc/table.h` failed"
    )
    assert "No such file or directory: 'csrc/numbers.txt'" in error.what
    assert "list every file that it reads in `inputs`" in (error.hint or "")
    assert error.place is not None
    assert error.place.key == "kernel.table.generate"


def test_the_last_lines_of_a_failing_command_are_shown(made: Path) -> None:
    command(made, "sh", "-c", "for i in $(seq 99); do echo line $i; done; exit 7")
    error = failure(made)
    assert "failed with status 7\n  line 88\n" in error.what
    assert error.what.endswith("\n  line 99")


def test_a_program_that_is_not_there_is_an_error(made: Path) -> None:
    command(made, "no-such-program")
    assert failure(made).code == "KY416"


def test_all_outputs_have_to_be_written(made: Path) -> None:
    command(made, "sh", "-c", "echo > csrc/table.cpp; ln -s table.cpp csrc/table.h")
    error = failure(made)
    assert (error.code, "did not write csrc/table.h" in error.what) == ("KY415", True)


def test_inputs_that_change_meanwhile_are_noticed(made: Path) -> None:
    command(made, "sh", "-c", f"touch csrc/table.cpp csrc/table.h; echo 9 > '{made}/csrc/numbers.txt'")
    assert "changed while it ran" in failure(made).what


def test_the_environment_is_scrubbed(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("PYTHONPATH", str(made))
    command(made, "sh", "-c", "env | cut -d= -f1 | sort > csrc/table.cpp; pwd > csrc/table.h")
    names = set(run(made)["csrc/table.cpp"].decode().split()) - {"PWD", "OLDPWD", "SHLVL", "_"}
    assert names == {"PATH", "LC_ALL", "SOURCE_DATE_EPOCH", "PYTHONHASHSEED", "PYTHONNOUSERSITE"}
    assert str(made) not in run(made)["csrc/table.h"].decode()


def test_python_is_this_python(made: Path) -> None:
    code = "import sys; [open(f'csrc/table.{e}', 'w').write(sys.executable) for e in ('h', 'cpp')]"
    command(made, "python3", "-c", code)
    assert run(made)["csrc/table.h"].decode() == sys.executable


def test_a_program_of_the_project_is_run_with_its_permissions(made: Path) -> None:
    program = made / "tools" / "make"
    program.write_text("#!/bin/sh\nprintf x > csrc/table.cpp; printf y > csrc/table.h\n")
    program.chmod(0o755)
    command(made, "tools/make")
    assert run(made) == {"csrc/table.cpp": b"x", "csrc/table.h": b"y"}


def test_there_is_no_network(made: Path) -> None:
    if not without_network():
        pytest.skip("this system does not let us take the network away")
    command(made, "sh", "-c", "cp /proc/net/dev csrc/table.cpp; touch csrc/table.h")
    devices = [line.partition(":")[0].strip() for line in run(made)["csrc/table.cpp"].decode().splitlines()[2:]]
    assert set(devices) <= {
        "lo",
        "tunl0",
        "sit0",
        "ip6tnl0",
        "gre0",
        "gretap0",
        "erspan0",
        "ip_vti0",
        "ip6_vti0",
        "ip6gre0",
    }


def test_steps_run_also_where_the_network_cannot_be_taken_away(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_step, "without_network", tuple)
    assert run(made).keys() == {"csrc/table.cpp", "csrc/table.h"}


def test_sections_of_other_variants_are_not_generated(made: Path) -> None:
    file = made / "build.toml"
    file.write_text(
        file.read_text().replace("[kernel.table.generate]", 'when = { cpu = "aarch64" }\n[kernel.table.generate]')
    )
    assert run(made) == {}


@pytest.mark.compile
def test_generated_files_are_compiled_and_part_of_the_id(made: Path, source: PartSource) -> None:
    def ident(path: Path) -> str:
        return Metadata.from_json(path.joinpath("metadata.json").read_bytes(), path="metadata.json").id

    (built,) = build_project(made, source=source)
    first, before = ident(built.path), hash_tree(built.path)
    shutil.rmtree(made / ".kernelyard")
    (again,) = build_project(made, source=source)
    assert hash_tree(again.path) == before
    made.joinpath("csrc", "numbers.txt").write_text("1\n4\n6\n")
    (other,) = build_project(made, source=source)
    assert ident(other.path) != first
