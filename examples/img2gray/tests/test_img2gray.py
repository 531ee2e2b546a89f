"""What img2gray promises, checked on every device there is.

Two references: `exact` computes in float64 and bounds the error; `stepwise` takes each rounding step of the documented
arithmetic with a torch operation of its own, so the kernel has to match it in every bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

pytestmark = pytest.mark.torch

DTYPES = [torch.uint8, torch.float16, torch.bfloat16, torch.float32]
LAYOUTS = ["HWC", "NHWC", "CHW", "NCHW"]
# The loops take up to 32 pixels at a time: sizes around that, odd ones, and one that several threads share.
SIZES = [(1, 1), (1, 7), (3, 5), (2, 8), (4, 16), (1, 31), (3, 11), (5, 13), (16, 16), (17, 257), (301, 499)]
NAN = {torch.float16: 0x7E00, torch.bfloat16: 0x7FC0, torch.float32: 0x7FC00000}
BITS = {torch.uint8: torch.uint8, torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}


def exact(interleaved: torch.Tensor) -> torch.Tensor:
    r, g, b = interleaved.double().unbind(-1)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def stepwise(interleaved: torch.Tensor) -> torch.Tensor:
    if interleaved.dtype == torch.uint8:
        r, g, b = interleaved.int().unbind(-1)
        return ((13933 * r + 46871 * g + 4732 * b + 32768) >> 16).to(torch.uint8)
    r, g, b = interleaved.float().unbind(-1)
    gray = ((0.2126 * r + 0.7152 * g) + 0.0722 * b).to(interleaved.dtype)
    nan = torch.tensor(NAN[gray.dtype], dtype=BITS[gray.dtype]).view(gray.dtype)
    return torch.where(gray.isnan(), nan, gray)


def random_image(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.uint8:
        return torch.randint(0, 256, shape, dtype=dtype, generator=generator)
    return torch.randn(shape, generator=generator).to(dtype)


def in_layout(interleaved: torch.Tensor, layout: str) -> torch.Tensor:
    """The same pixels, contiguous in `layout`."""
    return interleaved.movedim(-1, layout.index("C")).contiguous()


def assert_same_bits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert torch.equal(actual.cpu().view(BITS[actual.dtype]), expected.cpu().view(BITS[expected.dtype]))


# Arithmetic


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_every_uint8_colour_is_within_0_503_of_exact(img2gray: ModuleType, device: str, layout: str) -> None:
    levels = torch.arange(256, dtype=torch.uint8)
    colours = torch.cartesian_prod(levels, levels, levels).view(4096, 4096, 3)
    gray = img2gray.img2gray(in_layout(colours, layout).to(device), layout=layout).cpu()
    for rows in torch.arange(4096).split(256):
        assert (gray[rows] - exact(colours[rows])).abs().max() <= 0.503
    assert gray[0, 0] == 0
    assert gray[-1, -1] == 255


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_float32_error_is_four_roundings(img2gray: ModuleType, device: str, scale: float) -> None:
    image = random_image(64, 1000, 3, dtype=torch.float32) * scale
    error = (img2gray.img2gray(image.to(device), layout="HWC").cpu() - exact(image)).abs()
    # The weight, the product, and at most two sums: (1 + 2^-24)^4 - 1, relative to the sum of magnitudes.
    assert (error <= 4.01 * 2**-24 * exact(image.abs())).all()


@pytest.mark.parametrize("others", ["zero", "random"])
@pytest.mark.parametrize("channel", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_16_bit_pattern_in_one_channel(
    img2gray: ModuleType, device: str, dtype: torch.dtype, channel: int, others: str
) -> None:
    image = random_image(256, 256, 3, dtype=dtype) if others == "random" else torch.zeros(256, 256, 3, dtype=dtype)
    image[..., channel] = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype).view(256, 256)
    expected = stepwise(image)
    for layout in ("HWC", "CHW"):
        assert_same_bits(img2gray.img2gray(in_layout(image, layout).to(device), layout=layout), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_exponent_of_the_result(img2gray: ModuleType, device: str, dtype: torch.dtype) -> None:
    # Three channels of like size over the whole range, so that sums round, cancel, go subnormal and overflow.
    exponents = torch.arange(-150, 129, dtype=torch.float64).view(-1, 1, 1)
    image = (random_image(1, 999, 3, dtype=torch.float32).double() * 2.0**exponents).to(dtype)
    assert_same_bits(img2gray.img2gray(image.to(device)), stepwise(image))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_infinity_and_nan_pass_through(img2gray: ModuleType, device: str, dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    image = torch.tensor([[[inf, 1, 1], [1, -inf, 1], [inf, -inf, 1], [nan, 1, 1], [1, 1, -nan]]], dtype=dtype)
    gray = img2gray.img2gray(image.to(device), layout="HWC").cpu()
    assert gray[0, :2].tolist() == [inf, -inf]
    assert gray[0, 2:].view(BITS[dtype]).tolist() == [NAN[dtype]] * 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_black_and_white_stay(img2gray: ModuleType, device: str, dtype: torch.dtype) -> None:
    white = 255 if dtype == torch.uint8 else 1
    image = torch.tensor([[[0, 0, 0], [white, white, white]]], dtype=dtype, device=device)
    assert img2gray.img2gray(image, layout="HWC").tolist() == [[0, white]]


# Shapes and memory


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(img2gray: ModuleType, device: str, dtype: torch.dtype, layout: str, size: tuple[int, int]) -> None:
    for images in (1, 2, 3) if "N" in layout else (None,):
        shape = size if images is None else (images, *size)
        image = random_image(*shape, 3, dtype=dtype)
        gray = img2gray.img2gray(in_layout(image, layout).to(device), layout=layout)
        assert gray.is_contiguous()
        assert gray.device.type == device
        assert_same_bits(gray, stepwise(image))


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (0, 0, 3), (0, 4, 5, 3), (2, 0, 5, 3), (2, 4, 0, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_image_gives_empty_gray(
    img2gray: ModuleType, device: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    image = torch.empty(shape, dtype=dtype, device=device)
    assert img2gray.img2gray(image).shape == shape[:-1]
    layout = "CHW" if len(shape) == 3 else "NCHW"
    assert img2gray.img2gray(in_layout(image, layout), layout=layout).shape == shape[:-1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [1, 2, 3, 5, 8])
def test_memory_that_starts_at_an_odd_address(
    img2gray: ModuleType, device: str, dtype: torch.dtype, offset: int
) -> None:
    image = random_image(33, 64, 3, dtype=dtype)
    for layout in ("HWC", "CHW"):
        stored = in_layout(image, layout)
        shifted = torch.empty(offset + stored.numel(), dtype=dtype, device=device)[offset:].view(stored.shape)
        shifted.copy_(stored)
        assert_same_bits(img2gray.img2gray(shifted, layout=layout), stepwise(image))
        out = torch.empty(offset + 33 * 64, dtype=dtype, device=device)[offset:].view(33, 64)
        assert_same_bits(img2gray.img2gray(stored.to(device), layout=layout, out=out), stepwise(image))


@pytest.mark.parametrize(
    "view",
    [
        lambda image: image[:, 1:-1, 2:-3],
        lambda image: image[:, ::2, ::3],
        lambda image: image.flip(1),
        lambda image: image.transpose(1, 2),
        lambda image: image.flip(-1),
        lambda image: image[..., :1].expand(-1, -1, -1, 3),
    ],
    ids=["crop", "steps", "flipped", "transposed", "bgr", "expanded"],
)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_images_with_gaps(
    img2gray: ModuleType, device: str, layout: str, view: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    interleaved = view(random_image(2, 20, 31, 3, dtype=torch.uint8))
    given = view(random_image(2, 20, 31, 3, dtype=torch.uint8).to(device)).movedim(-1, layout.index("C"))
    assert_same_bits(img2gray.img2gray(given, layout=layout), stepwise(interleaved))


@pytest.mark.parametrize("dtype", DTYPES)
def test_either_order_of_memory_is_read_without_a_copy(
    img2gray: ModuleType, device: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = random_image(2, 9, 14, 3, dtype=dtype)
    channels_last = image.to(device).permute(0, 3, 1, 2)
    assert channels_last.is_contiguous(memory_format=torch.channels_last)
    planar_as_nhwc = in_layout(image, "NCHW").to(device).permute(0, 2, 3, 1)

    def refuse(_self: torch.Tensor) -> torch.Tensor:
        pytest.fail("copied")

    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "contiguous", refuse)
        from_channels_last = img2gray.img2gray(channels_last, layout="NCHW")
        from_planar = img2gray.img2gray(planar_as_nhwc, layout="NHWC")
    assert_same_bits(from_channels_last, stepwise(image))
    assert_same_bits(from_planar, stepwise(image))


@pytest.mark.parametrize("shape", [(5, 7, 3), (3, 5, 7), (2, 5, 7, 3), (2, 3, 5, 7)], ids=str)
def test_layout_is_guessed_where_only_one_fits(img2gray: ModuleType, device: str, shape: tuple[int, ...]) -> None:
    image = random_image(*shape, dtype=torch.float32)
    channels = shape.index(3)
    gray = img2gray.img2gray(image.to(device))
    assert_same_bits(gray, stepwise(image.movedim(channels, -1)))


def test_out_is_filled_and_returned(img2gray: ModuleType, device: str) -> None:
    image = random_image(10, 11, 3, dtype=torch.uint8)
    out = torch.empty(10, 11, dtype=torch.uint8, device=device)
    assert img2gray.img2gray(image.to(device), out=out) is out
    assert_same_bits(out, stepwise(image))


def test_nothing_beyond_out_is_written(img2gray: ModuleType, device: str) -> None:
    for pixels in range(1, 80):
        black = torch.zeros(1, pixels, 3, dtype=torch.uint8, device=device)
        buffer = torch.full((pixels + 128,), 99, dtype=torch.uint8, device=device)
        img2gray.img2gray(black, layout="HWC", out=buffer[None, 64:-64])
        assert (buffer[:64] == 99).all()
        assert (buffer[-64:] == 99).all()
        assert (buffer[64:-64] == 0).all()


# Refusals


@pytest.mark.parametrize(
    ("shape", "layout", "match"),
    [
        ((3, 5, 3), None, r"shape \(3, 5, 3\) may be HWC or CHW: pass layout="),
        ((2, 3, 5, 3), None, r"may be NHWC or NCHW: pass layout="),
        ((4, 5, 6), None, r"neither HWC nor CHW: no 3 channels in shape \(4, 5, 6\)"),
        ((3, 4, 5, 6), None, r"neither NHWC nor NCHW: no 3 channels"),
        ((5, 3), None, r"3 or 4 dimensions, got shape \(5, 3\)"),
        ((1, 2, 5, 5, 3), None, r"3 or 4 dimensions"),
        ((5, 5, 3), "WHC", r"layout must be 'HWC', 'NHWC', 'CHW' or 'NCHW', got 'WHC'"),
        ((5, 5, 3), "NHWC", r"layout NHWC means 4 dimensions, image has shape \(5, 5, 3\)"),
        ((5, 5, 3), "CHW", r"layout CHW means 3 channels in dimension 0"),
        ((5, 5, 4), "HWC", r"layout HWC means 3 channels in dimension 2"),
    ],
)
def test_wrong_shape_or_layout(
    img2gray: ModuleType, device: str, shape: tuple[int, ...], layout: str | None, match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        img2gray.img2gray(torch.zeros(shape, device=device), layout=layout)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.int8, torch.bool, torch.complex64])
def test_wrong_dtype(img2gray: ModuleType, device: str, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=rf"uint8, float16, bfloat16 or float32, got {dtype}"):
        img2gray.img2gray(torch.zeros(4, 5, 3, dtype=dtype, device=device))


@pytest.mark.parametrize(
    ("out", "match"),
    [
        (torch.empty(5, 4), r"out must have shape \(4, 5\), got \(5, 4\)"),
        (torch.empty(4, 5, dtype=torch.float16), r"out must have the dtype of image, torch.float32"),
        (torch.empty(5, 4).t(), r"out must be contiguous"),
    ],
    ids=["shape", "dtype", "strides"],
)
def test_wrong_out(img2gray: ModuleType, device: str, out: torch.Tensor, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        img2gray.img2gray(torch.zeros(4, 5, 3, device=device), out=out.to(device))


def test_out_on_another_device(img2gray: ModuleType, device: str) -> None:
    with pytest.raises(ValueError, match="out must be on the device of image"):
        img2gray.img2gray(torch.zeros(4, 5, 3, device=device), out=torch.empty(4, 5, device="meta"))


def test_out_that_shares_memory_with_the_image(img2gray: ModuleType, device: str) -> None:
    buffer = torch.zeros(80, device=device)
    for start in (0, 10, 59):
        with pytest.raises(RuntimeError, match="out must not share memory with image"):
            img2gray.img2gray(buffer[:60].view(4, 5, 3), out=buffer[start : start + 20].view(4, 5))
    img2gray.img2gray(buffer[:60].view(4, 5, 3), out=buffer[60:].view(4, 5))


def test_gradients_are_refused_only_where_they_would_be_lost(img2gray: ModuleType, device: str) -> None:
    image = torch.rand(4, 5, 3, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"no backward: call it under torch.no_grad\(\)"):
        img2gray.img2gray(image)
    with pytest.raises(RuntimeError, match="no backward"):
        img2gray.img2gray(image.detach(), out=torch.empty(4, 5, device=device, requires_grad=True))
    with torch.no_grad():
        expected = img2gray.img2gray(image)
    assert_same_bits(img2gray.img2gray(image.detach()), expected)
    with torch.inference_mode():
        assert_same_bits(img2gray.img2gray(image), expected)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((torch.empty(5), torch.empty(5, 3), False), "3 or 4 dimensions, got 2"),
        ((torch.empty(()), torch.empty(()), False), "3 or 4 dimensions, got 0"),
        ((torch.empty(4, 5), torch.empty(4, 5, 4), False), "dimension 2 of image must have size 3, got 4"),
        ((torch.empty(4, 5), torch.empty(4, 5, 3), True), "dimension 0 of image must have size 3, got 4"),
        ((torch.empty(2, 4, 5), torch.empty(2, 4, 5, 3), True), "dimension 1 of image must have size 3, got 4"),
        ((torch.empty(4), torch.empty(4, 5, 3), False), "out must have 2 dimensions, got 1"),
        ((torch.empty(4, 6), torch.empty(4, 5, 3), False), "dimension 1 of out must have size 5, got 6"),
        ((torch.empty(0, 5), torch.empty(4, 5, 3), False), "dimension 0 of out must have size 4, got 0"),
        ((torch.empty(4, 5), torch.empty(3, 5, 4), True), "dimension 0 of out must have size 5, got 4"),
        ((torch.empty(4, 5).double(), torch.empty(4, 5, 3).double(), False), "uint8, float16, bfloat16 or float32"),
        ((torch.empty(4, 5).half(), torch.empty(4, 5, 3), False), "out must have the dtype of image"),
        ((torch.empty(4, 5), torch.empty(5, 4, 3).transpose(0, 1), False), "image must be contiguous"),
        ((torch.empty(5, 4).t(), torch.empty(4, 5, 3), False), "out must be contiguous"),
    ],
)
def test_the_bare_operator_refuses_nonsense(
    img2gray: ModuleType, device: str, arguments: tuple[torch.Tensor, torch.Tensor, bool], match: str
) -> None:
    out, image, planar = arguments
    out, image = (torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device) for t in (out, image))
    with pytest.raises(RuntimeError, match=match):
        img2gray._ops.ops.img2gray(out, image, planar)  # noqa: SLF001


# torch.compile


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiles_whole_and_once_for_all_sizes(img2gray: ModuleType, device: str, backend: str, layout: str) -> None:
    torch.compiler.reset()

    @torch.compile(fullgraph=True, dynamic=True, backend=backend)
    def brighter(image: torch.Tensor) -> torch.Tensor:
        return img2gray.img2gray(image, layout=layout) + 1

    for height, width in [(8, 13), (21, 34), (55, 89)]:
        image = random_image(*((4,) if "N" in layout else ()), height, width, 3, dtype=torch.uint8)
        with torch._dynamo.config.patch(error_on_recompile=(height, width) != (8, 13)):  # noqa: SLF001
            assert_same_bits(brighter(in_layout(image, layout).to(device)), stepwise(image) + 1)


def test_compiles_with_out_guessed_layout_and_channels_last(img2gray: ModuleType, device: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(img2gray.img2gray, fullgraph=True, backend="aot_eager")
    image = random_image(2, 10, 12, 3, dtype=torch.float32)
    out = torch.empty(2, 10, 12, device=device)
    assert compiled(image.to(device), out=out) is out
    assert_same_bits(out, stepwise(image))
    assert_same_bits(compiled(image.to(device).permute(0, 3, 1, 2)), stepwise(image))
    assert_same_bits(compiled(image.to(device)[:, 1:, 1:]), stepwise(image[:, 1:, 1:]))


def test_compiled_refusal_and_compiled_no_grad(img2gray: ModuleType, device: str) -> None:
    torch.compiler.reset()
    image = torch.rand(4, 5, 3, device=device, requires_grad=True)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def without_gradients(image: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return img2gray.img2gray(image)

    assert_same_bits(without_gradients(image), stepwise(image.detach().cpu()))
    with pytest.raises(Exception, match="no backward"):
        torch.compile(img2gray.img2gray, fullgraph=True, backend="aot_eager")(image)


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_opcheck(img2gray: ModuleType, device: str, dtype: torch.dtype, planar: bool) -> None:  # noqa: FBT001
    image = random_image(*((2, 3, 5, 7) if planar else (2, 5, 7, 3)), dtype=dtype).to(device)
    out = torch.empty(2, 5, 7, dtype=dtype, device=device)
    torch.library.opcheck(img2gray._ops.ops.img2gray.default, (out, image, planar))  # noqa: SLF001


# CUDA


@pytest.fixture
def gpu() -> str:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    return "cuda"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cpu_and_cuda_give_the_same_bits(img2gray: ModuleType, gpu: str, dtype: torch.dtype, layout: str) -> None:
    # Random bits, not random numbers: infinities, NaNs and subnormals are all there.
    raw = torch.randint(-(2**31), 2**31, (4, 123, 457, 3), generator=torch.Generator().manual_seed(0))
    image = raw.to(BITS[dtype]).view(dtype)
    image = in_layout(image if "N" in layout else image[0], layout)
    assert_same_bits(img2gray.img2gray(image.to(gpu), layout=layout), img2gray.img2gray(image, layout=layout))


@pytest.mark.gpu
def test_one_module_serves_both_devices_in_turn(img2gray: ModuleType, gpu: str) -> None:
    image = random_image(40, 50, 3, dtype=torch.uint8)
    for where in ("cpu", gpu, "cpu", gpu):
        gray = img2gray.img2gray(image.to(where))
        assert gray.device.type == where
        assert_same_bits(gray, stepwise(image))


@pytest.mark.gpu
def test_operator_refuses_tensors_of_two_devices(img2gray: ModuleType, gpu: str) -> None:
    operator = img2gray._ops.ops.img2gray  # noqa: SLF001
    with pytest.raises(RuntimeError, match="out must be on the device of image"):
        operator(torch.empty(4, 5), torch.empty(4, 5, 3, device=gpu), False)  # noqa: FBT003
    with pytest.raises(RuntimeError, match="image must be on a CUDA device"):
        operator(torch.empty(4, 5, device=gpu), torch.empty(4, 5, 3), False)  # noqa: FBT003


@pytest.mark.gpu
def test_work_goes_to_the_current_stream(img2gray: ModuleType, gpu: str) -> None:
    image = random_image(2000, 3000, 3, dtype=torch.uint8)
    on_gpu = torch.zeros(image.shape, dtype=torch.uint8, device=gpu)
    pinned = image.pin_memory()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # noqa: SLF001 - the image arrives late: on any other stream gray would be black
        on_gpu.copy_(pinned, non_blocking=True)
        gray = img2gray.img2gray(on_gpu)
    stream.synchronize()
    assert_same_bits(gray, stepwise(image))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_graph_replays_on_new_pixels(img2gray: ModuleType, gpu: str, dtype: torch.dtype) -> None:
    first, second = (random_image(64, 65, 3, dtype=dtype, seed=seed) for seed in (1, 2))
    image = first.to(gpu)
    out = torch.empty(64, 65, dtype=dtype, device=gpu)
    img2gray.img2gray(image, out=out)  # loads the code, which is not allowed while capturing
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        img2gray.img2gray(image, out=out)
    image.copy_(second)
    graph.replay()
    assert_same_bits(out, stepwise(second))


@pytest.mark.gpu
def test_more_work_than_blocks_in_the_grid(img2gray: ModuleType, gpu: str) -> None:
    # One pixel a thread (odd address) and 65536 blocks of 256 threads: 2^24 pixels, so these go round twice.
    pixels = 2**24 + 12345
    image = random_image(1 + 3 * pixels, dtype=torch.uint8)[1:].view(1, pixels, 3)
    on_gpu = torch.empty(1 + 3 * pixels, dtype=torch.uint8, device=gpu)[1:].view(1, pixels, 3).copy_(image)
    assert_same_bits(img2gray.img2gray(on_gpu, layout="HWC"), stepwise(image))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_more_pixels_than_a_32_bit_integer_counts(img2gray: ModuleType, gpu: str, layout: str) -> None:
    height, width = 3, 2**31 // 3 + 17
    if torch.cuda.mem_get_info()[0] < 12 * 2**30:
        pytest.skip("needs 12 GiB of free GPU memory")
    image = torch.zeros((height, width, 3) if layout == "HWC" else (3, height, width), dtype=torch.uint8, device=gpu)
    pixels = image if layout == "HWC" else image.permute(1, 2, 0)
    pixels[-1, -5:] = torch.tensor([10, 20, 30], dtype=torch.uint8, device=gpu)
    pixels[1, 7] = torch.tensor([200, 100, 50], dtype=torch.uint8, device=gpu)
    gray = img2gray.img2gray(image, layout=layout)
    assert gray[-1, -6:].tolist() == [0, 19, 19, 19, 19, 19]
    assert gray[1, 6:9].tolist() == [0, 118, 0]
    assert int(torch.count_nonzero(gray)) == 6


@pytest.mark.gpu
def test_tensors_on_a_device_that_is_not_current(img2gray: ModuleType, gpu: str) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    image = random_image(30, 40, 3, dtype=torch.uint8)
    with torch.cuda.device(0):
        gray = img2gray.img2gray(image.to(f"{gpu}:1"))
        assert torch.cuda.current_device() == 0
    assert gray.device.index == 1
    assert_same_bits(gray, stepwise(image))
