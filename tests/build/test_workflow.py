"""The workflow for GitHub Actions: is it one, and do its steps build what a single run does?"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

Sample = Callable[[str], Path]
Run = Callable[..., subprocess.CompletedProcess[str]]


def planned(kernelyard: Run, root: Path, *options: str) -> dict[str, Any]:
    done = kernelyard("build", root, "--plan", "github-actions", *options)
    assert (done.returncode, done.stderr) == (0, "")
    workflow: dict[str, Any] = yaml.safe_load(done.stdout)
    return workflow


def step(workflow: dict[str, Any], job: str, name: str) -> dict[str, Any]:
    (found,) = [one for one in workflow["jobs"][job]["steps"] if one.get("name") == name]
    step: dict[str, Any] = found
    return step


def test_there_is_a_machine_for_each_toolkit(kernelyard: Run, sample: Sample) -> None:
    workflow = planned(kernelyard, sample("tiny"))
    build = workflow["jobs"]["build"]
    assert build["strategy"]["matrix"] == {"shard": [1, 2]}
    assert build["strategy"]["fail-fast"] is False
    assert step(workflow, "build", "Build")["run"] == "kernelyard build --shard ${{ matrix.shard }}/2\n"
    assert step(workflow, "build", "Hand on what was built")["with"]["path"] == "build"
    assert workflow["jobs"]["merge"]["needs"] == "build"
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["defaults"] == {"run": {"working-directory": "."}}


def test_what_is_asked_for_is_asked_of_each_machine(kernelyard: Run, sample: Sample) -> None:
    options = ("--variant", "*-cpu-*", "--variant", "*cu130*", "--platform", "aarch64-linux", "--jobs", "3")
    workflow = planned(kernelyard, sample("tiny"), *options, "--pinned-compiler", "--no-cache", "--shards", "5")
    assert workflow["jobs"]["build"]["strategy"]["matrix"] == {"shard": [1, 2, 3, 4, 5]}
    selection = "--variant '*-cpu-*' --variant '*cu130*' --platform aarch64-linux"
    assert step(workflow, "build", "Build")["run"] == (
        f"kernelyard build {selection} --jobs 3 --pinned-compiler --no-cache --shard ${{{{ matrix.shard }}}}/5\n"
    )
    assert step(workflow, "merge", "Put the parts together")["run"] == (
        f'kernelyard merge --complete {selection} "$RUNNER_TEMP/parts"\n'
    )


def test_selectors_of_other_kinds_stay_what_they_are(kernelyard: Run, sample: Sample) -> None:
    workflow = planned(kernelyard, sample("blend"), "--backend", "cpu", "--torch", ">=2.13")
    selection = "--backend cpu --torch '>=2.13'"
    assert workflow["jobs"]["build"]["strategy"]["matrix"] == {"shard": [1]}
    assert (
        step(workflow, "build", "Build")["run"] == f"kernelyard build {selection} --shard ${{{{ matrix.shard }}}}/1\n"
    )
    assert step(workflow, "merge", "Put the parts together")["run"] == (
        f'kernelyard merge --complete {selection} "$RUNNER_TEMP/parts"\n'
    )


def test_objects_are_kept_unless_the_build_is_from_a_lock_or_without_a_cache(kernelyard: Run, sample: Sample) -> None:
    root = sample("lookup")
    name = "Let sccache keep objects in the cache of GitHub Actions"
    workflow = planned(kernelyard, root)
    assert workflow["jobs"]["build"]["env"]["SCCACHE_GHA_ENABLED"] == "true"
    assert "ACTIONS_RUNTIME_TOKEN" in step(workflow, "build", name)["with"]["script"]
    for more in ((), ("--backend", "cpu")):
        done = kernelyard("build", root, "--plan", "github-actions", "--locked", *more)
        assert (done.returncode, "KY353" in done.stderr) == (1, True)
    assert kernelyard("toolchain", "lock", root).returncode == 0
    for option in ("--locked", "--no-cache"):
        text = json.dumps(planned(kernelyard, root, option))
        assert "SCCACHE" not in text
        assert "ACTIONS_RUNTIME_TOKEN" not in text
        assert f"kernelyard build {option} --shard" in text


def test_a_project_inside_a_repository_is_built_there(kernelyard: Run, sample: Sample) -> None:
    root = sample("tiny")
    top = root.parent
    subprocess.run(["git", "init", "--quiet", top], check=True)
    folder = root.rename(top / "it's tiny")
    workflow = planned(kernelyard, folder)
    assert workflow["defaults"]["run"]["working-directory"] == "it's tiny"
    assert step(workflow, "merge", "Hand on the whole")["with"]["path"] == "it's tiny/build"
    key = step(workflow, "build", "Keep the parts of toolchains")["with"]["key"]
    assert "hashFiles('it''s tiny/build.toml', 'it''s tiny/kernelyard.toml', 'it''s tiny/toolchain.lock')" in key


def test_actions_are_pinned_by_their_major_version(kernelyard: Run, sample: Sample) -> None:
    workflow = planned(kernelyard, sample("tiny"))
    used = [one["uses"] for job in workflow["jobs"].values() for one in job["steps"] if "uses" in one]
    assert {name.partition("@")[0] for name in used} == {
        f"actions/{name}"
        for name in ("cache", "checkout", "download-artifact", "github-script", "setup-python", "upload-artifact")
    }
    assert [name for name in used if not re.fullmatch(r"actions/[a-z-]+@v[0-9]+", name)] == []


def test_it_can_be_written_to_a_file(kernelyard: Run, sample: Sample) -> None:
    root = sample("tiny")
    printed = kernelyard("build", root, "--plan", "github-actions").stdout
    done = kernelyard("build", ".", "--plan", "github-actions", "--output", ".github/workflows/kernel.yml", cwd=root)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (root / ".github" / "workflows" / "kernel.yml").read_text() == printed
    assert not (root / "build").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--plan", "github-actions", "--shard", "1/2"],
        ["--plan", "github-actions", "--on", "dask://127.0.0.1:1"],
        ["--plan", "github-actions", "--capability", "9.0"],
        ["--plan", "gitlab"],
        ["--shards", "2"],
        ["--output", "x.yml"],
        ["--on", "dask://127.0.0.1:1", "--shard", "1/2"],
    ],
)
def test_options_that_do_not_go_together_are_bad_usage(kernelyard: Run, sample: Sample, options: list[str]) -> None:
    root = sample("tiny")
    done = kernelyard("build", root, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert not (root / "build").exists()


@pytest.mark.compile
@pytest.mark.network
def test_its_steps_build_what_a_single_run_does(
    kernelyard: Run, sample: Sample, environment: dict[str, str], tmp_path: Path
) -> None:
    origin = sample("blend")
    workflow = planned(kernelyard, origin, "--variant", "*-cpu-*", "--shards", "3", "--no-cache")
    parts = tmp_path / "temp" / "parts"
    path = os.pathsep.join([sysconfig.get_path("scripts"), environment["PATH"]])

    def run(job: str, name: str, folder: Path, shard: int = 0) -> None:
        script = step(workflow, job, name)["run"].replace("${{ matrix.shard }}", str(shard))
        assert "${{" not in script
        variables = environment | {"RUNNER_TEMP": str(tmp_path / "temp"), "PATH": path}
        subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=variables, check=True, capture_output=True)

    for shard in workflow["jobs"]["build"]["strategy"]["matrix"]["shard"]:
        checkout = shutil.copytree(origin, tmp_path / f"machine {shard}")
        run("build", "Build", checkout, shard)
        shutil.copytree(checkout / "build", parts / f"kernel-part-{shard}")
    whole = shutil.copytree(origin, tmp_path / "whole")
    run("merge", "Put the parts together", whole)
    run("merge", "Check", whole)
    assert kernelyard("build", origin, "--variant", "*-cpu-*", "--no-cache").returncode == 0
    assert sorted(folder.name for folder in parts.iterdir()) == [f"kernel-part-{shard}" for shard in (1, 2, 3)]
    built = {
        root: {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (origin / "build", whole / "build")
    }
    assert built[origin / "build"] == built[whole / "build"]


def test_it_is_a_workflow_by_the_published_schema(kernelyard: Run, sample: Sample) -> None:
    pytest.importorskip("check_jsonschema")
    import jsonschema
    from check_jsonschema.builtin_schemas import get_builtin_schema

    workflow = planned(kernelyard, sample("tiny"))
    # YAML 1.1 takes `on` for a truth value; GitHub does not.
    workflow["on"] = workflow.pop(True)  # type: ignore[call-overload]
    jsonschema.validate(json.loads(json.dumps(workflow)), get_builtin_schema("vendor.github-workflows"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**workflow, "jobs": []}, get_builtin_schema("vendor.github-workflows"))


@pytest.mark.parametrize("options", [(), ("--no-cache", "--variant", "*cpu*")])
def test_actionlint_has_nothing_to_say(
    kernelyard: Run, sample: Sample, tmp_path: Path, options: tuple[str, ...]
) -> None:
    actionlint = shutil.which("actionlint")
    if actionlint is None:
        pytest.skip("actionlint is not on this machine")
    file = tmp_path / "kernel.yml"
    file.write_text(kernelyard("build", sample("tiny"), "--plan", "github-actions", *options).stdout)
    done = subprocess.run([actionlint, "-no-color", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
