from __future__ import annotations

import importlib
import importlib.resources
import marshal
import pkgutil
import py_compile
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from kernelyard.errors import LoadError, VerificationError
from kernelyard.hub.folder import FolderVariant
from kernelyard.load import get_loaded_kernels, get_local_kernel
from kernelyard.load.stored.verified import VerifiedTree, verify_folder

MakeVariant = Callable[..., Path]


def test_eight_threads_import_one_kernel_once(make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    monkeypatch.setattr(sys, "_runs_of_the_test", runs, raising=False)
    slow = "import sys, time\nsys._runs_of_the_test.append(1)\ntime.sleep(0.2)\nDONE = True\n"
    variant = make_variant(files={"__init__.py": slow})
    barrier = threading.Barrier(8)

    def load(_: int) -> ModuleType:
        barrier.wait()
        module = get_local_kernel(variant)
        assert module.DONE
        return module

    with ThreadPoolExecutor(8) as pool:
        modules = list(pool.map(load, range(8)))
    assert len(runs) == 1
    assert all(module is modules[0] for module in modules)
    assert len(get_loaded_kernels()) == 1


def test_a_deadlock_with_an_ordinary_import_does_not_happen(
    make_variant: MakeVariant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread loads a kernel that imports a library; another imports the library, which loads the kernel."""
    monkeypatch.syspath_prepend(tmp_path)
    variant = make_variant(files={"__init__.py": "import time\ntime.sleep(0.2)\nimport library_of_the_test\n"})
    program = f"from kernelyard.load import get_local_kernel\nkernel = get_local_kernel({str(variant)!r})\n"
    (tmp_path / "library_of_the_test.py").write_text("import time\ntime.sleep(0.2)\n" + program)
    threads = [
        threading.Thread(target=get_local_kernel, args=(variant,), daemon=True),
        threading.Thread(target=__import__, args=("library_of_the_test",), daemon=True),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert len(get_loaded_kernels()) == 1
    del sys.modules["library_of_the_test"]


def test_planted_bytecode_is_not_run(make_variant: MakeVariant, tmp_path: Path) -> None:
    variant = make_variant()
    evil = tmp_path / "evil.py"
    evil.write_text("def times(x, factor):\n    return 'evil'\n")
    for planted in (variant / "__pycache__" / f"_ops.{sys.implementation.cache_tag}.pyc", variant / "only.pyc"):
        planted.parent.mkdir(exist_ok=True)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(evil), cfile=str(planted), invalidation_mode=mode)
        assert marshal.loads(planted.read_bytes()[16:])  # noqa: S302
    module = get_local_kernel(variant)
    assert module.twice(1) == 2
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{module.__name__}.only")


def test_no_bytecode_is_written(make_variant: MakeVariant) -> None:
    variant = make_variant()
    get_local_kernel(variant)
    assert not list(variant.rglob("*.pyc"))


@pytest.mark.parametrize("id_", ["json", "sys", "_ctypes", "antigravity", "pytest", "kernelyard", "__main__"])
def test_an_id_that_is_a_module_is_refused(make_variant: MakeVariant, id_: str) -> None:
    before = sys.modules.get(id_)
    with pytest.raises(VerificationError, match="the name of a module that exists") as caught:
        get_local_kernel(make_variant(id_=id_))
    assert caught.value.code == "KY603"
    assert caught.value.exit_code == 4
    assert sys.modules.get(id_) is before


def test_an_extension_of_its_own_on_the_module_path_is_no_reason_to_refuse(
    make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = make_variant(id_="_gray_on_path", files={"_gray_on_path.py": ""})
    monkeypatch.syspath_prepend(variant)
    assert get_local_kernel(variant).twice(1) == 2


def test_another_kernel_with_the_same_id_is_refused_while_one_is_loaded(make_variant: MakeVariant) -> None:
    one = get_local_kernel(make_variant("one", id_="_gray_twin"))
    with pytest.raises(VerificationError, match="another kernel with the id '_gray_twin'") as caught:
        get_local_kernel(make_variant("two", id_="_gray_twin", files={"more.py": ""}))
    assert caught.value.code == "KY603"
    assert sys.modules["_gray_twin"] is one


def test_a_kernel_of_a_kernelyard_that_is_gone_is_called_so(make_variant: MakeVariant) -> None:
    program = (
        "import sys\nfrom kernelyard import get_local_kernel\nget_local_kernel(sys.argv[1])\n"
        "for name in [name for name in sys.modules if name.startswith('kernelyard')]: del sys.modules[name]\n"
        "from kernelyard import get_local_kernel\nget_local_kernel(sys.argv[1])\n"
    )
    command = [sys.executable, "-c", program, str(make_variant())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "was loaded by a Kernelyard that is not in sys.modules any more [KY603]" in done.stderr


@pytest.mark.parametrize("answer", ["raise ValueError('no')", "return 5"])
def test_an_error_that_has_no_text_is_the_kernels_too(make_variant: MakeVariant, answer: str) -> None:
    body = f"class Mute(Exception):\n    def __str__(self):\n        {answer}\nraise Mute\n"
    with pytest.raises(LoadError, match=r"Mute: \(its text cannot be had") as caught:
        get_local_kernel(make_variant(files={"__init__.py": body}))
    assert caught.value.code == "KY604"
    assert type(caught.value.__cause__).__name__ == "Mute"


def test_a_failed_import_leaves_nothing_and_names_the_cause(make_variant: MakeVariant) -> None:
    files = {"__init__.py": "from . import _ops, layers\n1 / 0\n", "layers/__init__.py": "from . import deep\n"}
    variant = make_variant("one", id_="_gray_failing", files={**files, "layers/deep.py": ""})
    with pytest.raises(LoadError, match="ZeroDivisionError: division by zero") as caught:
        get_local_kernel(variant)
    assert isinstance(caught.value, ImportError)
    assert caught.value.code == "KY604"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not [name for name in sys.modules if name.startswith("_gray_failing")]
    assert get_loaded_kernels() == []
    mended = make_variant("two", id_="_gray_failing")
    assert get_local_kernel(mended).twice(2) == 4


def test_submodules_that_are_imported_later_are_verified(make_variant: MakeVariant) -> None:
    late = {
        "__init__.py": "import importlib\ndef late(name):\n    return importlib.import_module('.' + name, __name__)\n"
    }
    variant = make_variant(files={**late, "good.py": "X = 1\n", "bad.py": "X = 1\n", "space/inner.py": "X = 3\n"})
    module = get_local_kernel(variant)
    (variant / "bad.py").write_text("raise SystemExit\n")
    (variant / "added.py").write_text("raise SystemExit\n")
    assert module.late("good").X == 1
    assert module.late("space.inner").X == 3
    with pytest.raises(VerificationError, match="has changed since it was verified") as caught:
        module.late("bad")
    assert caught.value.code == "KY602"
    with pytest.raises(ModuleNotFoundError, match=r"No module named '_gray_\w+\.added'"):
        module.late("added")


def test_a_change_between_hashing_and_running_is_noticed(
    make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = make_variant()

    def swap(found: FolderVariant) -> VerifiedTree:
        tree = verify_folder(found)
        (variant / "_ops.py").write_text("raise SystemExit\n")
        return tree

    monkeypatch.setattr("kernelyard.load.folders.verify_folder", swap)
    with pytest.raises(VerificationError, match="has changed since"):
        get_local_kernel(variant)
    assert get_loaded_kernels() == []


def test_data_files_are_found_in_the_usual_ways(make_variant: MakeVariant) -> None:
    files = {"__init__.py": "from pathlib import Path\nBESIDE = (Path(__file__).parent / 'table.txt').read_text()\n"}
    variant = make_variant(files={**files, "table.txt": "1 2 3", "sub/more.txt": "4"})
    module = get_local_kernel(variant)
    assert module.BESIDE == "1 2 3"
    assert (importlib.resources.files(module) / "table.txt").read_text() == "1 2 3"
    assert (importlib.resources.files(module) / "sub" / "more.txt").read_text() == "4"
    assert pkgutil.get_data(module.__name__, "table.txt") == b"1 2 3"
    (variant / "table.txt").write_text("9")
    with pytest.raises(VerificationError):
        pkgutil.get_data(module.__name__, "table.txt")


def test_source_is_shown_in_tracebacks_and_by_inspect(make_variant: MakeVariant) -> None:
    import inspect

    module = get_local_kernel(make_variant())
    assert inspect.getsource(module.twice) == "def twice(x):\n    return _ops.times(x, 2)\n"


def test_a_kernel_can_ask_for_itself_and_for_another(make_variant: MakeVariant) -> None:
    other = make_variant("other")
    ask = "from kernelyard.load import get_local_kernel\nfrom pathlib import Path\n"
    ask += f"me = get_local_kernel(Path(__file__).parent)\nother = get_local_kernel({str(other)!r})\n"
    module = get_local_kernel(make_variant(files={"__init__.py": ask}))
    assert module.me is module
    assert module.other.twice(1) == 2
    assert len(get_loaded_kernels()) == 2


def test_a_kernel_that_catches_its_own_failure_is_not_registered(make_variant: MakeVariant) -> None:
    ask = "from kernelyard.load import get_local_kernel\nfrom pathlib import Path\n"
    ask += "get_local_kernel(Path(__file__).parent)\nraise RuntimeError('no')\n"
    with pytest.raises(LoadError, match="no"):
        get_local_kernel(make_variant(files={"__init__.py": ask}))
    assert get_loaded_kernels() == []


SOURCE = """
#include <stddef.h>
typedef struct _object PyObject;
typedef struct { PyObject *base[2]; size_t ob_size; } Head;
struct PyModuleDef_Base { Head head; PyObject *(*init)(void); size_t index; PyObject *copy; };
struct PyModuleDef {
  size_t refcount; void *type; PyObject *(*init)(void); size_t index; PyObject *copy;
  const char *name, *doc; size_t size; void *methods, *slots, *traverse, *clear, *free;
};
PyObject *PyModuleDef_Init(struct PyModuleDef *);
static void *slots[] = {0, 0};
static struct PyModuleDef def = {1, 0, 0, 0, 0, "_gray_ext", 0, 0, 0, slots};
PyObject *PyInit__gray_ext(void) { return PyModuleDef_Init(&def); }
"""


@pytest.mark.compile
def test_an_extension_is_imported_relatively_and_only_if_verified(make_variant: MakeVariant, tmp_path: Path) -> None:
    (tmp_path / "ext.c").write_text(SOURCE)
    init = "def late():\n    from . import _gray_ext\n    return _gray_ext\n"
    variant = make_variant(name="torch-cpu", files={"__init__.py": init})
    library = variant / "_gray_ext.abi3.so"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    subprocess.run([compiler, "-shared", "-fPIC", str(tmp_path / "ext.c"), "-o", str(library)], check=True)
    module = get_local_kernel(variant)
    content = library.read_bytes()
    library.write_bytes(content + b"\0")
    with pytest.raises(VerificationError, match="has changed since"):
        module.late()
    library.write_bytes(content)
    assert module.late().__file__ == str(library)
    assert module.late().__name__ == f"{module.__name__}._gray_ext"
