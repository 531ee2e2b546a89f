"""Policies: what one of them forbids is loaded by nobody here, and what one allows needs no consent in a program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelyard import get_kernel, get_local_kernel
from kernelyard.errors import InputError, VerificationError
from kernelyard.hub import open_hub
from kernelyard.load import kernels
from kernelyard.load.trust import checks as trust
from kernelyard.load.trust import policies
from kernelyard.load.trust.checks import check_consent
from tests.hub.hugging_face_server import Hub

DENY = '[trust]\ndeny = ["org"]\n'
HUGGING_FACE = '[[trust.allow]]\nhub = "hf://"\nkernels = ["org/*"]\n'


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project, go there, and keep out what this user and this machine have."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(policies, "_MACHINE", str(tmp_path / "machine" / "policy.toml"))
    monkeypatch.setattr(trust, "_settled", {})
    monkeypatch.setattr(kernels, "_answered", {}, raising=False)
    for name in ("KERNELYARD_POLICY", "LOCAL_KERNELS", "KERNELYARD_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def built(make_variant: Callable[..., Path], publish: Callable[..., str]) -> Path:
    """Publish `org/gray` to the hub in `hub`; return the folder of its build."""
    build = make_variant().parent
    publish(build)
    return build


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def refused(code: str, **request: Any) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        get_kernel("org/gray", version=1, **request)
    assert caught.value.code == code
    assert caught.value.exit_code == 4
    return caught.value


@pytest.mark.parametrize(
    "place",
    ["kernelyard.toml", "pyproject.toml", "../kernelyard.toml", "variable", "config/kernelyard/policy.toml", "machine"],
)
def test_a_denied_kernel_is_refused_whatever_is_said(  # noqa: PLR0917 - each is a part of the surroundings
    built: Path, web_hub: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    text = DENY.replace("[trust]", "[tool.kernelyard.trust]") if place == "pyproject.toml" else DENY
    if place == "variable":
        path = write(tmp_path / "my.toml", text)
        monkeypatch.setenv("KERNELYARD_POLICY", str(path))
    elif place.startswith("config"):
        path = write(tmp_path / place, text)
    elif place == "machine":
        path = write(tmp_path / "machine/policy.toml", text)
    elif place.startswith(".."):
        path = write(project / "kernelyard.toml", text)
        (project / "deep/er").mkdir(parents=True)
        monkeypatch.chdir(project / "deep/er")
    else:
        path = write(project / place, text)
    requests: list[dict[str, Any]] = [
        {"hub": web_hub, "trust_remote_code": True},
        {"hub": web_hub, "trust_remote_code": ["org/gray"]},
        {"hub": tmp_path / "hub"},
        {"hub": built},
    ]
    for request in requests:
        error = refused("KY640", **request)
        assert str(error.place) == str(path)
        assert "'org' in" in error.what
    monkeypatch.setenv("LOCAL_KERNELS", f"org/gray={built}")
    refused("KY640", hub=web_hub)


@pytest.mark.usefixtures("built")
def test_what_stands_above_the_project_does_not_count(tmp_path: Path) -> None:
    write(tmp_path / "kernelyard.toml", DENY)
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub").twice(1) == 2


def test_from_the_script_s_folder_upwards_counts_wherever_it_is_started(tmp_path: Path, project: Path) -> None:
    write(tmp_path / "app/kernelyard.toml", "[trust]\nlocal = false\n")
    script = write(
        tmp_path / "app/bin/main.py",
        "from kernelyard import get_local_kernel\nget_local_kernel('/nowhere')\n",
    )
    done = subprocess.run([sys.executable, script], cwd=project, capture_output=True, text=True, check=False)
    assert "KY643" in done.stderr
    assert str(tmp_path / "app/kernelyard.toml") in done.stderr


def test_a_hub_that_no_policy_names_is_refused_and_one_that_is_needs_no_consent(
    built: Path, web_hub: str, project: Path
) -> None:
    del built
    write(project / "kernelyard.toml", '[[trust.allow]]\nhub = "https://kernels.example.com"\nkernels = ["org/*"]\n')
    error = refused("KY641", hub=web_hub, trust_remote_code=True)
    assert f"org/gray from {web_hub}" in error.what
    refused("KY641", trust_remote_code=True)
    write(project / "kernelyard.toml", f'[[trust.allow]]\nhub = "{web_hub}/"\nkernels = ["org/*"]\n')
    assert get_kernel("org/gray", version=1, hub=web_hub).twice(1) == 2
    with pytest.raises(VerificationError) as caught:
        get_kernel("other/gray", version=1, hub=web_hub, trust_remote_code=True)
    assert caught.value.code == "KY641"


def test_a_policy_is_no_consent_where_it_says_so(built: Path, web_hub: str, project: Path) -> None:
    del built
    write(project / "kernelyard.toml", f'[[trust.allow]]\nhub = "{web_hub}"\nkernels = ["*"]\nconsent = false\n')
    refused("KY605", hub=web_hub)
    assert get_kernel("org/gray", version=1, hub=web_hub, trust_remote_code=True).twice(1) == 2


def test_a_policy_for_the_hugging_face_hub_is_consent_there_and_nowhere_else(
    hugging_face: Hub, web_hub: str, project: Path
) -> None:
    write(project / "kernelyard.toml", HUGGING_FACE)
    hugging_face.untrusted.add("org")
    check_consent(open_hub(), "org/gray", None)
    # Who is named is not asked for.
    assert hugging_face.requests == []
    with pytest.raises(VerificationError) as caught:
        check_consent(open_hub(web_hub), "org/gray", trust_remote_code=True)
    assert caught.value.code == "KY641"


def test_all_policies_have_to_allow(built: Path, web_hub: str, project: Path, tmp_path: Path) -> None:
    del built
    allow = f'[[trust.allow]]\nhub = "{web_hub}"\nkernels = ["org/*"]\n'
    write(project / "kernelyard.toml", allow)
    machine = write(tmp_path / "machine/policy.toml", HUGGING_FACE)
    assert str(refused("KY641", hub=web_hub).place) == str(machine)
    write(machine, allow + "consent = false\n")
    # One of them is the consent; the other does not take it back.
    assert get_kernel("org/gray", version=1, hub=web_hub).twice(1) == 2
    write(tmp_path / "config/kernelyard/policy.toml", DENY)
    trust._settled.clear()
    kernels._answered.clear()
    refused("KY640", hub=web_hub)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_what_somebody_else_has_written_can_forbid_and_not_consent(built: Path, web_hub: str, project: Path) -> None:
    del built
    path = write(project / "kernelyard.toml", f'[[trust.allow]]\nhub = "{web_hub}"\nkernels = ["org/*"]\n')
    os.chown(path, 12345, -1)
    assert f"others than you may have written {path}" in refused("KY605", hub=web_hub).what
    # Nor can a link of theirs make one of mine hold where I did not put it.
    os.chown(path, 0, -1)
    path.rename(project / "elsewhere.toml")
    path.symlink_to(project / "elsewhere.toml")
    trust._settled.clear()
    os.chown(path, 12345, -1, follow_symlinks=False)
    refused("KY605", hub=web_hub)
    os.chown(path, 0, -1, follow_symlinks=False)
    assert get_kernel("org/gray", version=1, hub=web_hub).twice(1) == 2
    path.unlink()
    trust._settled.clear()
    kernels._answered.clear()
    write(path, DENY)
    os.chown(path, 12345, -1)
    refused("KY640", hub=web_hub)


def test_what_anybody_can_write_can_forbid_and_not_consent(built: Path, web_hub: str, project: Path) -> None:
    del built
    path = write(project / "kernelyard.toml", f'[[trust.allow]]\nhub = "{web_hub}"\nkernels = ["org/*"]\n')
    path.chmod(0o666)
    refused("KY605", hub=web_hub)


def test_folders_can_be_forbidden(built: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(project / "kernelyard.toml", "[trust]\nlocal = false\n")
    loads: list[Callable[[], object]] = [
        lambda: get_local_kernel(built),
        lambda: get_kernel("org/gray", version=1, hub=tmp_path / "hub"),
        lambda: get_kernel("org/my-gray", version=1, hub=built),
    ]
    for load in loads:
        with pytest.raises(VerificationError) as caught:
            load()
        assert (caught.value.code, str(caught.value.place)) == ("KY643", str(path))
    monkeypatch.setenv("LOCAL_KERNELS", f"org/gray={built}")
    refused("KY643")
    monkeypatch.delenv("LOCAL_KERNELS")
    # A folder that is a hub can be named as one.
    write(path, f'[trust]\nlocal = false\n[[trust.allow]]\nhub = "{tmp_path / "hub"}"\nkernels = ["org/gray"]\n')
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub").twice(1) == 2
    refused("KY643", hub=built)


@pytest.mark.parametrize(
    ("text", "code"),
    [("[trust]\ndeny = 1\n", "KY205"), ("[trsut]\n", "KY203"), ("[trust", "KY201"), ("[trust]\nall = []\n", "KY203")],
)
def test_a_policy_with_a_mistake_lets_nothing_be_loaded(
    built: Path, project: Path, tmp_path: Path, text: str, code: str
) -> None:
    path = write(project / "kernelyard.toml", text)
    loads: list[Callable[[], object]] = [
        lambda: get_local_kernel(built),
        lambda: get_kernel("other/kernel", version=1, hub=tmp_path / "hub"),
    ]
    for load in loads:
        with pytest.raises(InputError) as caught:
            load()
        assert caught.value.code == code
        assert caught.value.place is not None
        assert caught.value.place.path == str(path)
        assert caught.value.place.line is not None


def test_a_policy_that_cannot_be_read_lets_nothing_be_loaded(
    built: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "kernelyard.toml").write_bytes(b"[trust]\n# \xff\n")
    with pytest.raises(InputError, match="not UTF-8") as caught:
        get_local_kernel(built)
    assert caught.value.code == "KY647"
    (project / "kernelyard.toml").unlink()
    (project / "kernelyard.toml").mkdir()
    with pytest.raises(InputError, match="Is a directory"):
        get_local_kernel(built)
    (project / "kernelyard.toml").rmdir()
    monkeypatch.setenv("KERNELYARD_POLICY", str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="KERNELYARD_POLICY names a policy that cannot be read"):
        get_local_kernel(built)
    monkeypatch.setenv("KERNELYARD_POLICY", str(write(tmp_path / "empty.toml", "")))
    with pytest.raises(InputError, match="no table `trust`"):
        get_local_kernel(built)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b'\xef\xbb\xbf[tool.kernelyard.trust]\ndeny = ["org"]\n', "Invalid statement"),
        ('[tool.kernelyard.trust]\ndeny = ["org"]\n'.encode("utf-16"), "not UTF-8"),
        (b'[tool."kernelya\\u0072d".trust]\ndeny = ["org"]\n', "is denied"),
        (b'"tool"."\\U0000006bernelyard".trust.deny = ["org"]\n', "is denied"),
    ],
    ids=["with a byte order mark", "UTF-16", "escapes in the head of a table", "escapes in a key"],
)
@pytest.mark.usefixtures("built")
def test_a_table_that_is_written_in_an_odd_way_is_not_passed_over(
    project: Path, tmp_path: Path, content: bytes, what: str
) -> None:
    (project / "pyproject.toml").write_bytes(content)
    with pytest.raises((InputError, VerificationError), match=what):
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")


def test_a_policy_that_may_be_there_lets_nothing_be_loaded(
    built: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "kernelyard.toml").symlink_to("kernelyard.toml")
    with pytest.raises(InputError, match="cannot be seen: Too many levels of symbolic links") as caught:
        get_local_kernel(built)
    assert (caught.value.code, str(caught.value.place)) == ("KY647", str(project / "kernelyard.toml"))
    (project / "kernelyard.toml").unlink()
    monkeypatch.setenv("KERNELYARD_POLICY", "~no-such-user-here/policy.toml")
    with pytest.raises(InputError, match="cannot be found"):
        get_local_kernel(built)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("closed", ["config", "project"])
@pytest.mark.usefixtures("project")
def test_in_a_folder_that_is_closed_to_a_user_a_policy_may_be_but_no_project(tmp_path: Path, closed: str) -> None:
    write(tmp_path / "config" / "kernelyard" / "policy.toml", "")
    (tmp_path / closed).chmod(0)
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                for folder in (tmp_path, *tmp_path.parents[:-2]):
                    folder.chmod(0o755)
                os.setuid(65534)
            policies._script_folder = lambda: None
            policies.policies()
            os._exit(0)
        except InputError as error:
            os._exit(4 if error.code == "KY647" else 5)
        finally:
            os._exit(6)
    _, status = os.waitpid(child, 0)
    (tmp_path / closed).chmod(0o700)
    assert os.waitstatus_to_exitcode(status) == (4 if closed == "config" else 0)


def test_files_of_others_are_read_where_they_have_our_table(built: Path, project: Path) -> None:
    # Not TOML; a project that depends on us is not read for that.
    write(project / "pyproject.toml", '[project]\ndependencies = ["kernelyard>=0.1"]\nname = \n')
    assert get_local_kernel(built).twice(1) == 2
    for text in (
        "[tool.kernelyard]\ntrust = {local = false}\n",
        "[tool]\nkernelyard.trust.local = false\n",
        '[ tool . "kernelyard" . trust ]\nlocal = false\n',
        "tool = {kernelyard = {trust = {local = false}}}\n",
    ):
        write(project / "pyproject.toml", text)
        trust._settled.clear()
        with pytest.raises(VerificationError) as caught:
            get_local_kernel(built)
        assert caught.value.code == "KY643"


def test_a_changed_policy_counts(built: Path, project: Path) -> None:
    path = write(project / "kernelyard.toml", "[trust]\nlocal = false\n")
    for _ in range(2):
        trust._settled.clear()
        with pytest.raises(VerificationError):
            get_local_kernel(built)
        write(path, "[trust]\nlocal = true\n")
        trust._settled.clear()
        assert get_local_kernel(built).twice(1) == 2
        write(path, "[trust]\nlocal = false\n")


def test_an_unchanged_policy_is_parsed_once(built: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project / "kernelyard.toml", "[trust]\n")
    get_local_kernel(built)
    monkeypatch.setattr("kernelyard.formats.policy.read_policy", lambda *_, **__: pytest.fail("parsed again"))
    trust._settled.clear()
    get_local_kernel(built)


def test_a_current_folder_that_is_gone_is_no_trouble(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert get_local_kernel(built).twice(1) == 2
