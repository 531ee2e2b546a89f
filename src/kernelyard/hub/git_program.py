"""Running the machine's own git without surprises: it asks nobody, and means no repository that we stand in."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from kernelyard.errors import EnvironmentProblemError, Place

__all__ = ["git_environment", "read_blobs", "run_git"]

_CHUNK = 1 << 20
#: Set where a hook of git runs us; they mean the repository that is committed to.
_OF_REPOSITORIES = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_WORK_TREE",
    }
)
#: No hook and no cleaning of the user's runs in repositories that are ours.
_OPTIONS = ("-c", f"core.hooksPath={os.devnull}", "-c", "gc.auto=0", "-c", "maintenance.auto=false")


def git_environment(also: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a git that speaks English, and means the repository that it is told."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_REPOSITORIES}
    # A commit is what others get by its name: what `git replace` puts in its place is of one clone alone.
    return environment | {"LC_ALL": "C", "GIT_NO_REPLACE_OBJECTS": "1", **(also or {})}


def run_git(
    *arguments: str,
    stdin: bytes = b"",
    config: Sequence[tuple[str, str]] = (),
    also: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    silent: bool = False,
) -> bytes:
    """Return what git prints.

    Args:
        arguments: Of git.
        stdin: What it reads.
        config: Names and values of settings. They go by the environment, where nobody else sees them, after those that
            the user gives there.
        also: What it gets in its environment besides.
        cwd: Where it stands; None for where we do.
        silent: Whether what it prints is of no use.

    Raises:
        EnvironmentProblemError: There is no git (KY542).
        subprocess.CalledProcessError: It fails.
    """
    done = subprocess.run(
        [_git(), *_OPTIONS, *arguments],
        input=stdin,
        stdout=subprocess.DEVNULL if silent else subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=True,
        env=_environment(config, also),
        cwd=cwd,
    )
    return done.stdout or b""


def read_blobs(folder: Path, oids: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the id and the content, as it comes, of each blob of a repository; all by one process.

    What of a content is not taken before the next is asked for is passed over.

    Args:
        folder: The repository, which has them all.
        oids: Their ids.

    Raises:
        EnvironmentProblemError: There is no git (KY542), or it breaks off (KY502).
    """
    command = [_git(), *_OPTIONS, "cat-file", "--batch"]
    with tempfile.TemporaryFile() as asked:
        asked.write("".join(f"{oid}\n" for oid in oids).encode())
        asked.seek(0)
        with subprocess.Popen(
            command,
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment((), {"GIT_DIR": str(folder)}),
            cwd=folder,
        ) as process:
            try:
                for oid in oids:
                    found = process.stdout.readline().split() if process.stdout else []
                    if len(found) != len(("id", "type", "size")) or process.stdout is None:
                        what = f"git does not give the object {oid}"
                        hint = "remove the folder, which is a copy, and try again"
                        raise EnvironmentProblemError("KY502", what, hint=hint, place=Place(str(folder)))
                    content = _exactly(process.stdout, int(found[2]))
                    yield oid, content
                    for _ in content:
                        pass
                    process.stdout.readline()
            finally:
                process.kill()


def _exactly(file: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        size -= len(chunk)
        yield chunk


def _git() -> str:
    git = shutil.which("git")
    if git is None:
        raise EnvironmentProblemError("KY542", "a git hub needs git, which is not there", hint="install git")
    return git


def _environment(config: Sequence[tuple[str, str]], also: Mapping[str, str] | None) -> dict[str, str]:
    environment = git_environment()
    environment |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_LFS_SKIP_SMUDGE": "0",
        **(also or {}),
    }
    if config:
        given = environment.get("GIT_CONFIG_COUNT", "")
        count = int(given) if given.isdecimal() else 0
        for number, (name, value) in enumerate(config, start=count):
            environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        environment["GIT_CONFIG_COUNT"] = str(count + len(config))
    return environment
