"""Pushes that are killed, each by a SIGKILL of its own when it has executed a number of lines that is named beforehand.

For each line of input, `<lines> <arguments as JSON>`, a process is forked that runs `kernelyard push` with them; 0
lines let it live. The answer is `<status> <lines>`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from types import FrameType
from typing import Any

import huggingface_hub.hf_api
from huggingface_hub import constants

import kernelyard.publish  # noqa: F401 - all that a push imports is there before the lines are counted
from kernelyard.cli import main

assert huggingface_hub.hf_api
#: What writes hubs, and what it writes them with.
WRITING = (
    *("hub/publish.py", "hub/static.py", "hub/refs.py", "hub/hugging_face_publish.py", "hub/hugging_face_access.py"),
    *("publish/push.py", "kernelyard/store.py", "filelock/_unix.py"),
    *("huggingface_hub/_commit_api.py", "huggingface_hub/lfs.py", "huggingface_hub/utils/_http.py"),
)


def die_after(count: int, seen: list[int]) -> None:
    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(WRITING):
            return None
        if event == "line":
            seen[0] += 1
            if seen[0] == count:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def push(arguments: list[str], count: int, told: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    seen, status = [0], 0
    die_after(count, seen)
    sys.argv = ["kernelyard", "push", *arguments]
    try:
        main()
    except SystemExit as ended:
        status = int(ended.code or 0)
    sys.settrace(None)
    os.write(told, str(seen[0]).encode())
    os._exit(status)


def run() -> None:
    constants.HF_HUB_DISABLE_XET = True
    constants.HF_HUB_DISABLE_PROGRESS_BARS = True
    for line in sys.stdin:
        count, _, arguments = line.partition(" ")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            push(json.loads(arguments), int(count), write)
        _, status = os.waitpid(child, 0)
        os.close(write)
        with os.fdopen(read) as told:
            lines = told.read() or "0"
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)} {lines}\n")
        sys.stdout.flush()


run()
