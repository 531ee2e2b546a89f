from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def imported_by(statement: str) -> set[str]:
    program = f"import sys; before = set(sys.modules); {statement}; print('\\n'.join(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_rooms_know_each_other_only_downwards() -> None:
    program = Path(sysconfig.get_path("scripts")) / "lint-imports"
    done = subprocess.run([program, "--no-cache"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Contracts: 1 kept, 0 broken." in done.stdout


def test_importing_the_package_imports_none_of_its_rooms_and_nothing_heavy() -> None:
    modules = imported_by("import kernelyard")
    assert {name for name in modules if name.startswith("kernelyard")} == {"kernelyard"}
    heavy = {"dataclasses", "inspect", "json", "logging", "pathlib", "importlib.metadata", "subprocess", "typing"}
    assert not modules & heavy


def test_what_the_package_offers_is_imported_when_it_is_used() -> None:
    modules = imported_by("import kernelyard; kernelyard.KernelyardError")
    assert {name for name in modules if name.startswith("kernelyard")} == {"kernelyard", "kernelyard.errors"}
    program = (
        "import kernelyard; assert set(kernelyard.__all__) <= set(dir(kernelyard));"
        "assert all(getattr(kernelyard, name) for name in kernelyard.__all__)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    program = "import kernelyard\ntry:\n    kernelyard.nothing\nexcept AttributeError as error:\n    print(error)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "module 'kernelyard' has no attribute 'nothing'\n"


def test_loading_carries_nothing_of_building() -> None:
    modules = imported_by("import kernelyard.load")
    rooms = {name.split(".")[1] for name in modules if name.startswith("kernelyard.")}
    assert rooms <= {"load", "hub", "store", "binary", "formats", "errors", "records"}
    assert not modules & {"torch", "requests", "click", "tomli", "abi3info", "numpy", "pypi_simple"}


def test_records_are_made_by_our_own_decorator_which_costs_a_tenth() -> None:
    source = REPOSITORY / "src"
    frozen = [path for path in source.rglob("*.py") if "@dataclass(frozen=True" in path.read_text("utf-8")]
    assert frozen == []
