"""Which machine builds which variants."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelyard.build.matrix import matrix
from kernelyard.build.shard import Shard, partition
from kernelyard.errors import InputError
from kernelyard.project.sources import read_project

Run = Callable[..., subprocess.CompletedProcess[str]]

BLEND = Path(__file__).resolve().parents[1] / "projects" / "blend"


def variants(compute: str, count: int) -> list[str]:
    return [f"torch2{number}-cxx11-{compute}-x86_64-linux" for number in range(10, 10 + count)]


NAMES = [*variants("cpu", 5), *variants("cu130", 5), *variants("cu124", 3)]


def toolkits(part: tuple[str, ...]) -> set[str]:
    return {name.split("-")[2] for name in part}


@pytest.mark.parametrize(
    "text", ["", "1", "0/3", "4/3", "-1/3", "1/0", "1/2/3", "1.0/3", "a/b", "\u0661/\u0663", " 1/3", "1/12345"]
)
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Shard.parse(text)
    assert caught.value.code == "KY431"
    assert str(caught.value).startswith(f"not a part of a build: {text!r} [KY431]")


def test_a_part_is_read() -> None:
    assert Shard.parse("2/3") == Shard(2, 3)
    assert str(Shard.parse("2/3")) == "2/3"


def test_toolkits_stay_together_where_there_are_as_many_machines() -> None:
    parts = partition(NAMES, 3)
    assert [toolkits(part) for part in parts] == [{"cu130"}, {"cu124"}, {"cpu"}]


def test_two_machines_share_three_toolkits_evenly() -> None:
    parts = partition(NAMES, 2)
    assert [toolkits(part) for part in parts] == [{"cu130"}, {"cu124", "cpu"}]


def test_a_toolkit_is_divided_where_one_machine_would_work_much_longer() -> None:
    parts = partition(variants("cu130", 20), 4)
    assert [len(part) for part in parts] == [5, 5, 5, 5]


def test_a_toolkit_is_not_divided_for_little() -> None:
    # Two variants less, and the toolkit once more.
    assert [len(part) for part in partition([*variants("cu130", 4), *variants("cpu", 2)], 2)] == [4, 2]


def test_surplus_machines_have_nothing_to_do() -> None:
    parts = partition(variants("cpu", 2), 4)
    assert parts == ((variants("cpu", 2)[0],), (variants("cpu", 2)[1],), (), ())


def test_one_machine_builds_all() -> None:
    assert partition(NAMES, 1) == (tuple(sorted(NAMES)),)


def test_nothing_is_divided_into_nothing() -> None:
    assert partition([], 3) == ((), (), ())


@given(
    names=st.lists(st.sampled_from([*NAMES, *variants("cu126", 30)]), unique=True),
    count=st.integers(min_value=1, max_value=12),
    seed=st.randoms(use_true_random=False),
)
def test_parts_are_all_variants_once_in_whatever_order_they_come(
    names: list[str], count: int, seed: random.Random
) -> None:
    parts = partition(names, count)
    assert len(parts) == count
    assert sorted(name for part in parts for name in part) == sorted(names)
    shuffled = list(names)
    seed.shuffle(shuffled)
    assert partition(shuffled, count) == parts
    assert sum(not part for part in parts) == max(0, count - len(names))


def test_a_part_keeps_the_order_of_the_matrix() -> None:
    entries = [entry for entry in matrix(read_project(BLEND).manifest) if entry.by_default]
    chosen = [Shard(number, 3).of(entries) for number in (1, 2, 3)]
    order = [entry.name for entry in entries]
    assert sorted(entry.name for part in chosen for entry in part) == sorted(order)
    for part in chosen:
        assert [entry.name for entry in part] == sorted((entry.name for entry in part), key=order.index)


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_the_command_says_that_a_part_is_empty(
    kernelyard: Run, sample: Callable[[str], Path], option: tuple[str, ...]
) -> None:
    root = sample("tiny")
    done = kernelyard("build", root, "--variant", "*-cpu-*", "--shard", "3/3", *option)
    assert (done.returncode, done.stdout) == (0, "[]\n" if option else "")
    assert done.stderr == "nothing to build: there are fewer variants than parts, and part 3/3 is empty\n"
    assert not (root / "build").exists()
    assert kernelyard("build", root, "--shard", "4/3").returncode == 2
