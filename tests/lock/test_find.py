"""Whose lock is found. Real programs are started in real ways; each prints the lock that it gets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipapp
import zipfile
from pathlib import Path

import pytest

from kernelyard.errors import MissingError
from kernelyard.formats.lock import KernelLock
from kernelyard.lock.find import Caller, find_lock
from tests.conftest import REPOSITORY

#: Prints where the lock of whoever calls was found.
ASK = """
def where():
    from kernelyard.lock.find import caller_of, find_lock
    print(find_lock(None, caller_of()).path)
"""
#: The same from inside of Kernelyard, as `get_locked_kernel` does it.
GET = """
import kernelyard
def where():
    try:
        kernelyard.load_kernel("org/none")
    except kernelyard.KernelyardError as error:
        print(error.place.path if error.code == "KY705" else error)
"""
LOCK = KernelLock({}).to_json().decode()


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELYARD_LOCKFILE", raising=False)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def run(*arguments: str | Path, cwd: Path, path: Path | None = None, env: dict[str, str] | None = None) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    search = os.pathsep.join(map(str, filter(None, (path, REPOSITORY / "src"))))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=kept | {"PYTHONPATH": search} | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def install(site: Path, name: str, files: dict[str, str], **metadata: str) -> Path:
    """Lay files out as an installer does, and answer the folder of the metadata."""
    info = site / f"{name}-1.0.dist-info"
    record = ""
    for path, text in files.items():
        write(site / path, text)
        record += f"{path},,\n"
    for file, text in {"METADATA": f"Name: {name}\nVersion: 1.0\n", **metadata}.items():
        write(info / file, text)
        record += f"{info.name}/{file},,\n"
    write(info / "RECORD", record + f"{info.name}/RECORD,,\n")
    return info


CALLS = {
    "function": "where()",
    "method": "class A:\n    def go(self):\n        where()\nA().go()",
    "lambda": "(lambda: where())()",
    "comprehension": "[where() for _ in range(1)]",
    "map": "list(map(lambda _: where(), [1]))",
    "decorated": "import functools\n@functools.wraps(where)\ndef go():\n    where()\ngo()",
    "executed": "exec('where()')",
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("way", [ASK, GET], ids=["find", "load_kernel"])
def test_a_script_has_the_lock_of_its_project(tmp_path: Path, call: str, way: str) -> None:
    lock = write(tmp_path / "project/kernels.lock", LOCK)
    script = write(tmp_path / "project/tools/deep/script.py", way + CALLS[call])
    assert run(script, cwd=tmp_path) == str(lock)
    assert run("tools/deep/script.py", cwd=tmp_path / "project") == str(lock)


def test_a_thread_of_a_pool_whose_function_is_ours_has_the_lock_of_the_program(tmp_path: Path) -> None:
    lock = write(tmp_path / "kernels.lock", LOCK)
    text = """
import kernelyard
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool:
    print(pool.submit(kernelyard.load_kernel, "org/none").exception().place.path)
"""
    assert run(write(tmp_path / "script.py", text), cwd=tmp_path.parent) == str(lock)


@pytest.mark.parametrize("module", ["app", "app.part", "app.deep.part"])
def test_a_module_that_is_run_by_name_has_the_lock_of_its_package(tmp_path: Path, module: str) -> None:
    for name in ("__init__.py", "deep/__init__.py"):
        write(tmp_path / "src/app" / name, "")
    for name in ("__main__.py", "part.py", "deep/part.py"):
        write(tmp_path / "src/app" / name, ASK + "where()")
    lock = write(tmp_path / "src/app/kernels.lock", LOCK)
    assert run("-m", module, cwd=tmp_path, path=tmp_path / "src") == str(lock)


@pytest.mark.parametrize("folder", ["lib/site-packages", "vendor"])
@pytest.mark.parametrize("module", ["app", "app.part", "app.deep", "app.deep.part", "space.part"])
def test_an_installed_module_has_the_lock_of_what_installed_it(tmp_path: Path, module: str, folder: str) -> None:
    # `pip install --target vendor` installs as well.
    site = tmp_path / folder
    files = {
        "app/__init__.py": ASK,
        "app/part.py": ASK,
        "app/deep/__init__.py": ASK,
        "app/deep/part.py": ASK,
        # Without an __init__.py: other distributions have modules in the same package.
        "space/part.py": ASK,
    }
    info = install(site, "Some_app", files, **{"kernels.lock": LOCK})
    install(site, "another", {"other/__init__.py": "", "space/another.py": ""}, **{"kernels.lock": LOCK})
    # That of the project in whose environment it is installed is not its own.
    write(tmp_path / "kernels.lock", LOCK)
    program = f"import {module} as module; module.where()"
    assert run("-c", program, cwd=tmp_path, path=site) == str(info / "kernels.lock")
    inside = write(site / module.partition(".")[0] / "kernels.lock", LOCK)
    assert run("-c", program, cwd=tmp_path, path=site) == str(inside)


@pytest.mark.parametrize("folder", ["lib/site-packages", "vendor"])
def test_an_installed_module_without_a_lock_does_not_take_that_of_others(tmp_path: Path, folder: str) -> None:
    site = tmp_path / folder
    install(site, "app", {"app.py": GET})
    install(site, "another", {"other.py": ""}, **{"kernels.lock": LOCK})
    write(tmp_path / "kernels.lock", LOCK)
    said = run("-c", "import app; app.where()", cwd=tmp_path, path=site)
    assert "there is no kernels.lock for the module app; looked for:" in said
    assert f"the metadata in {site} of what has installed app.py" in said


def test_an_editable_install_has_the_lock_of_its_sources_or_else_of_its_metadata(tmp_path: Path) -> None:
    source = write(tmp_path / "elsewhere/app.py", ASK)
    url = json.dumps({"url": source.parent.as_uri(), "dir_info": {"editable": True}})
    info = install(
        tmp_path / "site", "app", {"app.pth": f"{source.parent}\n"}, **{"direct_url.json": url, "kernels.lock": LOCK}
    )
    program = f"import site; site.addsitedir({str(tmp_path / 'site')!r}); import app; app.where()"
    assert run("-c", program, cwd=tmp_path) == str(info / "kernels.lock")
    lock = write(source.with_name("kernels.lock"), LOCK)
    assert run("-c", program, cwd=tmp_path) == str(lock)


def test_a_notebook_and_a_command_line_have_the_lock_of_the_current_folder(tmp_path: Path) -> None:
    lock = write(tmp_path / "project/kernels.lock", LOCK)
    inside = tmp_path / "project/notebooks"
    inside.mkdir()
    assert run("-c", ASK + "where()", cwd=inside) == str(lock)
    # A cell of IPython: no `__file__`, and code under the name of a file that is somewhere else.
    cell = (
        f"code = compile({ASK + 'where()'!r}, '/tmp/ipykernel_1/1.py', 'exec'); exec(code, {{'__name__': '__main__'}})"
    )
    assert run(write(tmp_path / "kernel.py", cell), cwd=inside) == str(lock)


def test_an_application_in_an_archive_has_the_lock_inside_or_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "app/__main__.py", ASK + "where()\nimport tool.part\ntool.part.where()")
    write(tmp_path / "app/tool/__init__.py", "")
    write(tmp_path / "app/tool/part.py", ASK)
    archive = tmp_path / "bin/app.pyz"
    archive.parent.mkdir()
    zipapp.create_archive(tmp_path / "app", archive)
    beside = write(tmp_path / "bin/kernels.lock", LOCK)
    assert run(archive, cwd=tmp_path).split() == [str(beside)] * 2
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("kernels.lock", LOCK)
    assert run(archive, cwd=tmp_path).split() == [f"{archive}/kernels.lock"] * 2
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("tool/kernels.lock", LOCK)
    assert run(archive, cwd=tmp_path).split() == [f"{archive}/kernels.lock", f"{archive}/tool/kernels.lock"]


def test_an_archive_of_installed_packages_has_the_lock_in_their_metadata(tmp_path: Path) -> None:
    info = install(tmp_path / "app", "tool", {"tool/__init__.py": "", "tool/part.py": ASK}, **{"kernels.lock": LOCK})
    write(tmp_path / "app/__main__.py", "import tool.part; tool.part.where()")
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    assert run(tmp_path / "app.pyz", cwd=tmp_path) == f"{tmp_path}/app.pyz/{info.name}/kernels.lock"


def test_a_frozen_program_has_the_lock_beside_its_executable(tmp_path: Path) -> None:
    lock = write(tmp_path / "bin/kernels.lock", LOCK)
    text = f"import sys\nsys.frozen = True\nsys.executable = {str(tmp_path / 'bin/app')!r}\n{ASK}\n"
    text += "exec(compile('where()', 'app', 'exec'), {'where': where, '__name__': 'app.part'})"
    # A frozen module has no file: its code is in the program.
    text = text.replace("def where", "del __file__\ndef where")
    assert run(write(tmp_path / "start.py", text), cwd=tmp_path) == str(lock)


def test_what_is_named_goes_before_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Caller("__main__", write(tmp_path / "script.py", ""))
    own, by_variable, by_argument = (
        write(tmp_path / name / "kernels.lock", LOCK) for name in (".", "variable", "argument")
    )
    assert find_lock(None, caller).path == str(own)
    monkeypatch.setenv("KERNELYARD_LOCKFILE", str(by_variable))
    assert find_lock(None, caller).path == str(by_variable)
    assert find_lock(by_argument, caller).path == str(by_argument)
    assert find_lock(str(by_argument.parent), caller).path == str(by_argument)
    by_argument.unlink()
    with pytest.raises(MissingError) as caught:
        find_lock(by_argument, caller)
    assert caught.value.code == "KY700"
    assert str(own) not in str(caught.value)


def test_where_it_was_looked_for_is_told(tmp_path: Path) -> None:
    script = write(tmp_path / "a/b/script.py", "")
    with pytest.raises(MissingError, match=r"there is no kernels\.lock for the main program") as caught:
        find_lock(None, Caller("__main__", script))
    assert f"\n  {tmp_path / 'a/b/kernels.lock'}\n  {tmp_path / 'a/kernels.lock'}\n" in caught.value.what
    assert "KERNELYARD_LOCKFILE" in caught.value.hint


def test_a_repository_is_the_end_of_the_search(tmp_path: Path) -> None:
    write(tmp_path / "kernels.lock", LOCK)
    script = write(tmp_path / "clone/script.py", "")
    (tmp_path / "clone/.git").mkdir()
    with pytest.raises(MissingError):
        find_lock(None, Caller("__main__", script))
    shutil.rmtree(tmp_path / "clone/.git")
    assert find_lock(None, Caller("__main__", script)).path == str(tmp_path / "kernels.lock")


def test_a_folder_that_all_may_write_is_the_end_of_the_search(tmp_path: Path) -> None:
    write(tmp_path / "shared/kernels.lock", LOCK)
    script = write(tmp_path / "shared/mine/script.py", "")
    (tmp_path / "shared").chmod(0o1777)
    with pytest.raises(MissingError):
        find_lock(None, Caller("__main__", script))
    (tmp_path / "shared").chmod(0o755)
    assert find_lock(None, Caller("__main__", script)).path == str(tmp_path / "shared/kernels.lock")


def test_looking_imports_nothing_that_is_heavy(tmp_path: Path) -> None:
    write(tmp_path / "kernels.lock", LOCK)
    text = (
        ASK + "where()\nimport sys\nprint(*sorted({'importlib.metadata', 'zipfile', 'packaging'} & set(sys.modules)))"
    )
    assert run(write(tmp_path / "script.py", text), cwd=tmp_path) == str(tmp_path / "kernels.lock")
