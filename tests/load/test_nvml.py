# ruff: noqa: N802 - the names are NVML's

from __future__ import annotations

from typing import Any

import pytest

from kernelyard.formats.versions import Version
from kernelyard.load.system.nvml import Gpu, Instance, read_gpus
from kernelyard.load.system.visible import visible_gpus


class FakeNvml:
    """Answers like libnvidia-ml of before R450; what is None fails with NVML_ERROR_UNKNOWN."""

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


class FakeMigNvml(FakeNvml):
    """Answers like a later one. A slot of a cut GPU is None, or UUID, number of GPU instance, of compute instance."""

    def __init__(self, cut: dict[int, list[tuple[str, int, int] | None]], **others: Any) -> None:
        super().__init__([((9, 0), "GPU-aaaa-1"), ((7, 5), "GPU-bbbb-2")], **others)
        self.cut = cut

    def nvmlDeviceGetName(self, device: Any, text: Any, length: int) -> int:
        del length
        text.value = [b"NVIDIA H200", b"Tesla T4"][device.value - 1]
        return 0

    def nvmlDeviceGetMigMode(self, device: Any, current: Any, pending: Any) -> int:
        if device.value == 2 and 1 not in self.cut:
            return 3  # NVML_ERROR_NOT_SUPPORTED, as a T4 answers
        current._obj.value = int(device.value - 1 in self.cut)
        pending._obj.value = 1
        return 0

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any, count: Any) -> int:
        count._obj.value = len(self.cut[device.value - 1])
        return 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: Any, handle: Any) -> int:
        if self.cut[device.value - 1][index.value] is None:
            return 6  # NVML_ERROR_NOT_FOUND
        handle._obj.value = device.value * 100 + index.value
        return 0

    def _slot(self, handle: Any) -> tuple[str, int, int]:
        slot: tuple[str, int, int] | None = self.cut[handle.value // 100 - 1][handle.value % 100]
        assert slot is not None
        return slot

    def nvmlDeviceGetGpuInstanceId(self, handle: Any, number: Any) -> int:
        number._obj.value = self._slot(handle)[1]
        return 0

    def nvmlDeviceGetComputeInstanceId(self, handle: Any, number: Any) -> int:
        number._obj.value = self._slot(handle)[2]
        return 0

    def nvmlDeviceGetUUID(self, device: Any, text: Any, length: int) -> int:
        if device.value < 100:
            return super().nvmlDeviceGetUUID(device, text, length)
        text.value = self._slot(device)[0].encode()
        return 0


def test_the_instances_of_a_gpu_that_is_cut_up_are_read() -> None:
    _, gpus = read_gpus(FakeMigNvml({0: [("MIG-1111-a", 1, 0), None, ("MIG-2222-b", 5, 1)]}))
    first = Gpu(
        0,
        "GPU-aaaa-1",
        (9, 0),
        "NVIDIA H200",
        mig=True,
        instances=(Instance("MIG-1111-a", 1, 0), Instance("MIG-2222-b", 5, 1)),
    )
    assert gpus == (first, Gpu(1, "GPU-bbbb-2", (7, 5), "Tesla T4"))


def test_a_gpu_that_could_be_cut_up_and_is_not_is_whole() -> None:
    _, gpus = read_gpus(FakeMigNvml({}))
    assert gpus == (Gpu(0, "GPU-aaaa-1", (9, 0), "NVIDIA H200"), Gpu(1, "GPU-bbbb-2", (7, 5), "Tesla T4"))


def test_instances_have_no_name_of_their_own_under_drivers_of_before_r470() -> None:
    _, gpus = read_gpus(FakeMigNvml({0: [("GPU-aaaa-1", 3, 0)]}))
    assert gpus[0].instances == (Instance("", 3, 0),)


def test_driver_and_gpus_are_read_and_nvml_is_closed() -> None:
    nvml = FakeNvml([((9, 0), "GPU-aaaa-1"), ((7, 5), "GPU-bbbb-2")])
    driver, gpus = read_gpus(nvml)
    assert driver == Version("580.65.06")
    assert gpus == (Gpu(0, "GPU-aaaa-1", (9, 0)), Gpu(1, "GPU-bbbb-2", (7, 5)))
    assert nvml.open == 0


def test_a_gpu_that_does_not_answer_is_left_out() -> None:
    _, gpus = read_gpus(FakeNvml([(None, "GPU-a"), ((9, 0), None)]))
    assert gpus == (Gpu(1, "", (9, 0)),)


def test_a_library_that_counts_wrongly_is_not_asked_for_ever() -> None:
    class Endless(FakeMigNvml):
        asked = 0

        def nvmlDeviceGetCount_v2(self, count: Any) -> int:
            count._obj.value = 2**32 - 1
            return 0

        def nvmlDeviceGetMaxMigDeviceCount(self, device: Any, count: Any) -> int:
            del device
            return self.nvmlDeviceGetCount_v2(count)

        def nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
            self.asked += 1
            assert self.asked < 3000
            return super().nvmlDeviceGetHandleByIndex_v2(index, device) if index.value < len(self.gpus) else 2

        def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: Any, handle: Any) -> int:
            self.asked += 1
            assert self.asked < 3000
            return 6 if index.value else super().nvmlDeviceGetMigDeviceHandleByIndex(device, index, handle)

    _, gpus = read_gpus(Endless({0: [("MIG-aaaa-1", 3, 0)]}))
    assert [gpu.uuid for gpu in gpus] == ["GPU-aaaa-1", "GPU-bbbb-2"]
    assert gpus[0].instances == (Instance("MIG-aaaa-1", 3, 0),)


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
        ("0,GPU-cccc", [0]),
        ("0,GPU-aaaa", [0]),
        ("GPU-cccc-3,2", [2]),
        ("GPU-cccc-3,GPU-c", []),
        ("GPU-", []),
        ("GPU-CCCC", [2]),
        ("0x1", [0]),
        ("+1", [1]),
        ("2abc", [2]),
        ("1;2", [1]),
        (",0", []),
        ("MIG-GPU-aaaa-1/1/0", []),
        ("1,,2", [1]),
        ("all", []),
        ("gpu-aaaa-1", []),
        ("9" * 5000, []),
        ("1," + "9" * 5000, [1]),
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
        ("GPU-cccc,0", [2], True),
        ("", [], True),
        ("7", [], True),
        ("0,0", [], True),
        ("MIG-GPU-aaaa-1/1/0", [], True),
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


CUT = (
    Gpu(0, "GPU-aaaa-1", (9, 0), mig=True, instances=(Instance("MIG-1111-a", 1, 0), Instance("MIG-1122-b", 2, 0))),
    Gpu(1, "GPU-bbbb-2", (9, 0), mig=True, instances=(Instance("", 3, 0),)),
    Gpu(2, "GPU-cccc-3", (9, 0)),
    Gpu(3, "GPU-dddd-4", (9, 0), mig=True),
)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["MIG-1111-a", "MIG-GPU-bbbb-2/3/0"]),
        ("0", ["MIG-1111-a"]),
        ("2", ["GPU-cccc-3"]),
        ("2,0", ["MIG-1111-a"]),
        ("3", []),
        ("GPU-aaaa", ["MIG-1111-a"]),
        ("MIG-1122-b", ["MIG-1122-b"]),
        ("MIG-1111", ["MIG-1111-a"]),
        ("MIG-11", []),
        ("MIG-1122-b,MIG-1111-a", ["MIG-1122-b", "MIG-1111-a"]),
        ("MIG-1122-b,MIG-1122-b", []),
        ("MIG-GPU-aaaa-1/2/0", ["MIG-1122-b"]),
        ("MIG-GPU-aaaa/2/0", ["MIG-1122-b"]),
        ("MIG-GPU-aaaa-1/2/1", []),
        ("MIG-GPU-bbbb-2/3/0", ["MIG-GPU-bbbb-2/3/0"]),
        ("MIG-GPU-aaaa-1", []),
        ("MIG-", []),
        ("MIG-1122-B", ["MIG-1122-b"]),
        ("GPU-cccc,MIG-1111", ["MIG-1111-a"]),
    ],
)
def test_instances_are_named_in_both_spellings_and_hide_whole_gpus(visible: str | None, expected: list[str]) -> None:
    gpus, in_order = visible_gpus(CUT, visible, None)
    assert [gpu.uuid for gpu in gpus] == expected
    assert in_order
    # What is computed on is not cut up any further, and is as capable as the GPU it is of.
    assert {(gpu.capability, gpu.mig, gpu.instances) for gpu in gpus} <= {((9, 0), False, ())}


def test_where_instances_are_not_listed_any_gpu_may_be_cut_up() -> None:
    gpus = (Gpu(0, "GPU-a", (9, 0), mig=True), Gpu(1, "GPU-b", (8, 0)))
    assert visible_gpus(gpus, "MIG-1234", "PCI_BUS_ID") == (gpus, True)
    assert visible_gpus(gpus, "MIG-1234", None) == (gpus, False)
