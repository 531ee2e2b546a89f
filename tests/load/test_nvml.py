# ruff: noqa: N802 - the names are NVML's

from __future__ import annotations

from typing import Any

import pytest

from kernelyard.formats.versions import Version
from kernelyard.load.nvml import Gpu, read_gpus
from kernelyard.load.visible import visible_gpus


class FakeNvml:
    """Answers like libnvidia-ml; what is None fails with NVML_ERROR_UNKNOWN."""

    def __init__(
        self, gpus: list[tuple[tuple[int, int] | None, str | None]], driver: bytes | None = b"580.65.06"
    ) -> None:
        self.gpus = gpus
        self.driver = driver
        self.open = 0

    def nvmlInit_v2(self) -> int:
        self.open += 1
        return 0

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, length: int) -> int:
        if self.driver is None:
            return 999
        assert len(self.driver) < length
        text.value = self.driver
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.gpus)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        device._obj.value = index.value + 1
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, device: Any, major: Any, minor: Any) -> int:
        capability = self.gpus[device.value - 1][0]
        if capability is None:
            return 999
        major._obj.value, minor._obj.value = capability
        return 0

    def nvmlDeviceGetUUID(self, device: Any, text: Any, length: int) -> int:
        uuid = self.gpus[device.value - 1][1]
        if uuid is None:
            return 999
        assert len(uuid) < length
        text.value = uuid.encode()
        return 0


def test_driver_and_gpus_are_read_and_nvml_is_closed() -> None:
    nvml = FakeNvml([((9, 0), "GPU-aaaa-1"), ((7, 5), "GPU-bbbb-2")])
    driver, gpus = read_gpus(nvml)
    assert driver == Version("580.65.06")
    assert gpus == (Gpu(0, "GPU-aaaa-1", (9, 0)), Gpu(1, "GPU-bbbb-2", (7, 5)))
    assert nvml.open == 0


def test_a_gpu_that_does_not_answer_is_left_out() -> None:
    _, gpus = read_gpus(FakeNvml([(None, "GPU-a"), ((9, 0), None)]))
    assert gpus == (Gpu(1, "", (9, 0)),)


def test_what_fails_is_no_gpu() -> None:
    class Old:
        def nvmlInit_v2(self) -> int:
            return 0

    class Broken(FakeNvml):
        def nvmlInit_v2(self) -> int:
            return 9

    assert read_gpus(Old()) == (None, ())
    assert read_gpus(Broken([((9, 0), "GPU-a")])) == (None, ())
    assert read_gpus(FakeNvml([], driver=None)) == (None, ())
    assert read_gpus(FakeNvml([], driver=b"strange")) == (None, ())


GPUS = (Gpu(0, "GPU-aaaa-1", (9, 0)), Gpu(1, "GPU-aabb-2", (9, 0)), Gpu(2, "GPU-cccc-3", (7, 5)))


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("2", [2]),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("0,-1,2", [0]),
        ("0,7,2", [0]),
        ("NoDevFiles", []),
        ("0,0", []),
        ("GPU-c", [2]),
        ("GPU-aaaa-1,GPU-cccc-3", [0, 2]),
        ("GPU-aa", []),
        ("0,GPU-cccc", [0, 2]),
        ("MIG-GPU-aaaa-1/1/0", [0, 1, 2]),
    ],
)
def test_cuda_visible_devices_in_its_forms(visible: str | None, expected: list[int]) -> None:
    gpus, in_order = visible_gpus(GPUS, visible, "PCI_BUS_ID")
    assert [gpu.index for gpu in gpus] == expected
    assert in_order


@pytest.mark.parametrize(
    ("visible", "expected", "in_order"),
    [
        (None, [0, 1, 2], False),
        ("0", [0, 1, 2], False),
        ("GPU-cccc,GPU-aabb", [2, 1], True),
        ("GPU-cccc,0", [0, 1, 2], False),
        ("", [], True),
        ("7", [], True),
        ("MIG-GPU-aaaa-1/1/0", [0, 1, 2], False),
    ],
)
@pytest.mark.parametrize("order", [None, "FASTEST_FIRST"])
def test_numbers_of_different_gpus_may_mean_any_while_the_fastest_comes_first(
    visible: str | None,
    expected: list[int],
    in_order: bool,  # noqa: FBT001
    order: str | None,
) -> None:
    gpus, found_order = visible_gpus(GPUS, visible, order)
    assert [gpu.index for gpu in gpus] == expected
    assert found_order is in_order


def test_numbers_of_equal_gpus_are_positions_in_any_order() -> None:
    assert visible_gpus(GPUS[:2], "1", None) == (GPUS[1:2], True)
