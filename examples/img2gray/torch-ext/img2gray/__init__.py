"""RGB to grayscale by luminance, for CPU and CUDA tensors."""

from __future__ import annotations

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["img2gray"]

_DTYPES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32)
_CHANNEL_DIM = {"HWC": 2, "NHWC": 3, "CHW": 0, "NCHW": 1}


@torch.library.register_fake(add_op_namespace_prefix("img2gray"))
def _img2gray_fake(out: torch.Tensor, image: torch.Tensor, planar: bool) -> None:  # noqa: FBT001
    """What `torch.compile` runs in place of the operator to learn shapes: it only writes into `out`."""


def img2gray(image: torch.Tensor, *, layout: str | None = None, out: torch.Tensor | None = None) -> torch.Tensor:
    """Convert RGB images to grayscale: 0.2126 R + 0.7152 G + 0.0722 B (ITU-R BT.709 luma), in the dtype of `image`.

    CPU and CUDA give the same bits:

    * uint8: whole-number arithmetic, rounded to nearest once; within 0.503 of the exact value.
    * float32: three products and two sums from left to right, each rounded to nearest, none fused.
    * float16, bfloat16: computed as float32, then rounded to nearest even.

    Floating-point values are not clamped; infinity and NaN pass through, and every NaN comes out as the same one.

    Args:
        image: uint8, float16, bfloat16 or float32, on the CPU or a CUDA device, of 3 or 4 dimensions, any of which but
            the channels may be 0. Memory in either order, interleaved or planar, is read where it lies, whichever way
            round the dimensions are given (so a `channels_last` tensor is not copied); an image with gaps
            (a crop, a flip, every second row) is copied first.
        layout: "HWC", "NHWC", "CHW" or "NCHW". Without it, the first or last of the three dimensions of a picture is
            taken for the channels, if exactly one of them has size 3.
        out: where to write: contiguous, of the result's shape, dtype and device, sharing no memory with `image`.

    Returns:
        `out`, or a new contiguous tensor, of shape (H, W) or (N, H, W).

    Raises:
        TypeError: for a dtype that is not supported.
        ValueError: for a wrong shape or layout, or an `out` that does not fit.
        RuntimeError: if `image` or `out` requires grad while grad mode is on, for there is no backward; or if `image`
            and `out` share memory.
    """
    if image.dtype not in _DTYPES:
        raise TypeError(f"image must be uint8, float16, bfloat16 or float32, got {image.dtype}")
    if layout is None:
        layout = _guess_layout(image)
    elif layout not in _CHANNEL_DIM:
        raise ValueError(f"layout must be 'HWC', 'NHWC', 'CHW' or 'NCHW', got {layout!r}")
    if image.dim() != len(layout):
        raise ValueError(f"layout {layout} means {len(layout)} dimensions, image has shape {tuple(image.shape)}")
    channel_dim = _CHANNEL_DIM[layout]
    if image.shape[channel_dim] != 3:
        raise ValueError(
            f"layout {layout} means 3 channels in dimension {channel_dim}, image has shape {tuple(image.shape)}"
        )
    if torch.is_grad_enabled() and (image.requires_grad or (out is not None and out.requires_grad)):
        raise RuntimeError("img2gray has no backward: call it under torch.no_grad(), or pass image.detach()")

    shape = image.shape[:channel_dim] + image.shape[channel_dim + 1 :]
    if out is None:
        out = torch.empty(shape, dtype=image.dtype, device=image.device)
    else:
        _check_out(out, image, shape)
    memory, planar = _as_stored(image, channel_dim)
    ops.img2gray(out, memory, planar)
    return out


def _guess_layout(image: torch.Tensor) -> str:
    candidates = {3: ("HWC", "CHW"), 4: ("NHWC", "NCHW")}.get(image.dim())
    if candidates is None:
        raise ValueError(f"image must have 3 or 4 dimensions, got shape {tuple(image.shape)}")
    fitting = [name for name in candidates if image.shape[_CHANNEL_DIM[name]] == 3]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ValueError(f"shape {tuple(image.shape)} may be {fitting[0]} or {fitting[1]}: pass layout=")
    raise ValueError(f"neither {candidates[0]} nor {candidates[1]}: no 3 channels in shape {tuple(image.shape)}")


def _check_out(out: torch.Tensor, image: torch.Tensor, shape: torch.Size) -> None:
    if out.shape != shape:
        raise ValueError(f"out must have shape {tuple(shape)}, got {tuple(out.shape)}")
    if out.dtype != image.dtype:
        raise ValueError(f"out must have the dtype of image, {image.dtype}, got {out.dtype}")
    if out.device != image.device:
        raise ValueError(f"out must be on the device of image, {image.device}, got {out.device}")
    if not out.is_contiguous():
        raise ValueError(f"out must be contiguous, got strides {out.stride()} for shape {tuple(out.shape)}")


def _as_stored(image: torch.Tensor, channel_dim: int) -> tuple[torch.Tensor, bool]:
    """The image with its dimensions in the order in which they lie in memory, and whether that is planar."""
    if image.is_contiguous():
        return image, channel_dim == image.dim() - 3
    interleaved = image.movedim(channel_dim, -1)
    if interleaved.is_contiguous():
        return interleaved, False
    planar = image.movedim(channel_dim, -3)
    if planar.is_contiguous():
        return planar, True
    return image.contiguous(), channel_dim == image.dim() - 3
