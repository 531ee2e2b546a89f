"""A git hub over ssh, by a server of this user's own on this machine."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import shutil
import socket
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError, MissingError
from kernelyard.hub.git import GitHub
from kernelyard.hub.git_access import GitPlace
from tests.hub.git_kernels import REPO, make
from tests.hub.git_server import WRITER, Host

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
pytestmark = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None, reason="there is no server or client of ssh on this machine"
)
SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile {folder}/pid
PasswordAuthentication no
StrictModes no
UsePAM no
ForceCommand {folder}/shell
"""
#: What a host that has LFS does for `git-lfs-authenticate`: it sends git-lfs to its server for https.
SHELL = """#!/bin/sh
case "$SSH_ORIGINAL_COMMAND" in
    "git-lfs-authenticate "*) cat {answer} ;;
    "git-upload-pack "* | "git-receive-pack "*) cd {root} && exec git shell -c "$SSH_ORIGINAL_COMMAND" ;;
    *) echo "no such command" >&2; exit 127 ;;
esac
"""


@pytest.fixture
def place(git_host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the repositories of the https host over ssh too; return the place."""
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "config").write_text(SERVER.format(port=port, folder=folder))
    shell = folder / "shell"
    shell.write_text(SHELL.format(answer=shlex.quote(str(folder / "answer")), root=shlex.quote(str(git_host.root))))
    shell.chmod(0o755)
    pair = f"Basic {b64encode(':'.join(WRITER).encode()).decode()}"
    url = f"https://127.0.0.1:{git_host.port}/{REPO}.git/info/lfs"
    (folder / "answer").write_text(json.dumps({"href": url, "header": {"Authorization": pair}}))
    log = folder / "log"
    command = [str(SSHD), "-D", "-f", str(folder / "config"), "-E", str(log)]
    server = subprocess.Popen([*_with_folder_of_its_own(), *command])
    key = f"-i {folder}/user -o IdentitiesOnly=yes -o UserKnownHostsFile={folder}/known"
    monkeypatch.setenv("GIT_SSH_COMMAND", f"ssh -F none -o BatchMode=yes {key}")
    try:
        _wait(server, port, log)
        scan = subprocess.run(
            ["ssh-keyscan", "-p", str(port), "127.0.0.1"], capture_output=True, text=True, check=False
        ).stdout
        if not scan:
            pytest.skip(f"the server of ssh does not answer here: {log.read_text()[-300:]}")
        (folder / "known").write_text(scan)
        yield f"git+ssh://{getpass.getuser()}@127.0.0.1:{port}{git_host.root}"
    finally:
        server.terminate()
        server.wait()


def _with_folder_of_its_own() -> list[str]:
    """Return what gives the server, where it is root's and was never started, the empty folder that it wants."""
    if os.geteuid() != 0 or Path("/run/sshd").is_dir() or shutil.which("unshare") is None:
        return []
    script = 'mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(200):
        if server.poll() is not None:
            pytest.skip(f"the server of ssh does not start here: {log.read_text()[-300:] if log.exists() else ''}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.skip("the server of ssh does not listen")


def test_a_kernel_is_published_and_fetched_over_ssh(git_host: Host, place: str, tmp_path: Path) -> None:
    git_host.make(REPO)
    hub = GitHub(GitPlace.parse(place))
    assert hub.location.endswith(f"@127.0.0.1{place.partition('@127.0.0.1')[2]}")
    made = make(tmp_path / "builds", "one", release="1.0.0")
    done = hub.publish(made)
    assert (done.changed, len(git_host.sent)) == (True, 2)
    assert hub.publish(made).changed is False
    assert hub.yank(REPO, "1.0.0", "wrong results")
    shutil.rmtree(tmp_path / "store")
    hub = GitHub(GitPlace.parse(place))
    found = hub.resolve(REPO, version="1.0.0")
    assert (found.id, found.index, found.withdrawn) == (done.revision.id, made.index, "wrong results")
    for entry in found.index.variants[0].files:
        hub.fetch_file(found, "torch-cpu", entry, tmp_path / "out" / entry.path)
        assert (tmp_path / "out" / entry.path).read_bytes() == (
            tmp_path / "builds/one/torch-cpu" / entry.path
        ).read_bytes()


def test_trouble_over_ssh_is_told(git_host: Host, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = GitHub(GitPlace.parse(place))
    with pytest.raises(MissingError) as missing:
        hub.resolve(REPO, version=1)
    assert missing.value.code == "KY501"
    git_host.make(REPO)
    # A server that knows git alone.
    (tmp_path / "ssh" / "answer").unlink()
    with pytest.raises(EnvironmentProblemError) as caught:
        hub.publish(make(tmp_path / "builds", "one"))
    assert caught.value.code == "KY543"
    plain = hub.publish(make(tmp_path / "builds", "plain", large=False)).revision.id
    hub.publish(make(tmp_path / "builds", "more", large=False))
    shutil.rmtree(tmp_path / "store")
    # A server that does not let the client choose git's protocol tells of branches and tags alone.
    with pytest.raises(EnvironmentProblemError) as caught:
        GitHub(hub.place).resolve(REPO, revision=plain)
    assert "AcceptEnv GIT_PROTOCOL" in caught.value.hint
    known = os.environ["GIT_SSH_COMMAND"]
    for wrong in (
        known.replace("/known", "/unknown"),
        f"{known} -o PubkeyAuthentication=no",
    ):
        monkeypatch.setenv("GIT_SSH_COMMAND", wrong)
        with pytest.raises(EnvironmentProblemError) as caught:
            hub.refs(REPO)
        assert (caught.value.code, caught.value.exit_code) == ("KY540", 3)
