"""Building on the workers of a cluster: dask.distributed places the tasks, and runs those of lost workers again."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from kernelyard.build.alone import alone
from kernelyard.build.built import remove_stale
from kernelyard.build.costs import Costs
from kernelyard.build.group import WORK_FOLDER, group_by_toolkit
from kernelyard.build.progress import Running, Snapshot, log_snapshot
from kernelyard.build.project import BuiltVariant, selected
from kernelyard.build.remote import worker
from kernelyard.build.remote.address import Cluster, is_protected
from kernelyard.build.remote.own_wheel import own_wheel
from kernelyard.build.remote.returned import Part, keep_logs, parts_of, receive, worker_failure
from kernelyard.build.remote.shipment import pack_sources
from kernelyard.build.selection import Selection
from kernelyard.build.shard import partition
from kernelyard.build.toolchain_lock import check_current, read_lock
from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, Place
from kernelyard.project.generate import MOVE_PROJECT
from kernelyard.project.plan import VariantPlan
from kernelyard.project.sources import read_project
from kernelyard.store import writing
from kernelyard.toolchain.parts import PartSource

__all__ = ["build_on_cluster"]

_logger = logging.getLogger("kernelyard.build")

_TIMEOUT_S = 10
#: Exceptions of a task are of its machine: a build that fails is an answer.
_RETRIES = 1
_LOOK_S = 2.0
#: For workers that are being started again.
_PATIENCE_S = 60.0
_MEMORY = "memory"


def build_on_cluster(
    root: Path,
    url: str,
    *,
    source: PartSource,
    variants: Selection | Sequence[str] = (),
    capabilities: Sequence[str] = (),
    jobs: int | None = None,
    locked: bool = False,
    cached: bool = True,
    watch: Callable[[Snapshot], None] = log_snapshot,
) -> tuple[BuiltVariant, ...]:
    """Build variants of a project on the workers of a cluster into ``build/`` here.

    Args:
        root: The project's folder.
        url: ``dask://HOST:PORT``, of the scheduler.
        source: Says for which platform, and with which compiler.
        variants: As :func:`kernelyard.build.project.build_project` has it, and so the others.
        capabilities: The same.
        jobs: Compilers at the same time on each worker.
        locked: The same.
        cached: Whether the workers use sccache, as each is configured.
        watch: Is given each state of the build: variants that have come back, and what the workers are at.

    Raises:
        InputError: The manifest has mistakes, or the address is none (KY451), or not safe (KY452).
        EnvironmentProblemError: The cluster cannot be reached or has no worker (KY453), another Python (KY454), cannot
            provide Kernelyard (KY455), or lost too many workers (KY456).
        KernelyardError: What a worker's build ended with, or :func:`kernelyard.build.merge.put_together` raises.
    """
    cluster, root = Cluster.parse(url), root.resolve()
    project = read_project(root)
    lock = read_lock(root) if locked else None
    if lock is not None:
        check_current(lock, source.platform)
    chosen = selected(project, source, variants or (lock.selection if lock is not None else ()))
    plans = {plan.name: plan for of_toolkit in group_by_toolkit(project, chosen, capabilities) for plan in of_toolkit}
    work = root / WORK_FOLDER
    with writing(work, elsewhere=MOVE_PROJECT):
        work.mkdir(exist_ok=True)
    with alone(work / "lock"):
        remove_stale(project, source.platform)
    shipment, wheel = pack_sources(project, list(plans.values())), own_wheel()
    order: dict[str, Any] = {
        "wheel": wheel.content,
        "wheel_name": wheel.name,
        "constraints": wheel.constraints,
        "sources": shipment.archive,
        "folder": shipment.folder,
        "locked": locked,
        "topic": f"kernelyard-{uuid.uuid4().hex}",
    }
    options = _options(source, capabilities, jobs=jobs, locked=locked, cached=cached)
    with _client(cluster) as client:
        workers = _workers(client, cluster)
        parts = parts_of(partition(plans, len(_with_memory(workers) or workers)))
        tasks = _Tasks(client, order, options, _Told(parts, watch))
        built: list[BuiltVariant] = []
        for part, answer, address in tasks.results(parts, _needs(root, parts, plans, workers)):
            keep_logs(answer, root, part)
            if answer["status"]:
                raise worker_failure(answer, root, part, address)
            built += receive(project, part, answer, address, shipment.state)
            tasks.told.came(part)
    order_of = [entry.name for entry in chosen]
    return tuple(sorted(built, key=lambda variant: order_of.index(variant.name)))


def _options(
    source: PartSource, capabilities: Sequence[str], *, jobs: int | None, locked: bool, cached: bool
) -> list[str]:
    """Return the options of ``kernelyard build`` on a worker, but for what it builds."""
    return [
        f"--platform={source.platform}",
        *(f"--capability={capability}" for capability in capabilities),
        *([f"--jobs={jobs}"] if jobs is not None else []),
        *(["--locked"] if locked else []),
        *(["--pinned-compiler"] if source.pinned_compiler else []),
        *(["--no-cache"] if not cached else []),
    ]


@contextmanager
def _client(cluster: Cluster) -> Iterator[Any]:
    try:
        import distributed
    except ModuleNotFoundError:
        hint = "pip install 'kernelyard[dask]'"
        raise EnvironmentProblemError("KY453", "dask.distributed is not installed here", hint=hint) from None
    # It says on its own of each lost connection what is said here once.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    security = cluster.security()
    try:
        client = distributed.Client(cluster.address, security=security, timeout=_TIMEOUT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        hint = "see that `dask scheduler` runs there, and with the certificates that dask has here"
        what = f"no scheduler of dask answers: {error}"
        raise EnvironmentProblemError("KY453", what, hint=hint, place=Place(cluster.url)) from None
    try:
        yield client
    finally:
        client.close(timeout=_TIMEOUT_S)


def _workers(client: Any, cluster: Cluster) -> Mapping[str, Mapping[str, Any]]:
    """Return the workers by their addresses, all of them of a kind that tasks can be sent to."""
    place = Place(cluster.url)
    workers: Mapping[str, Mapping[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        hint = "start some: dask worker ADDRESS"
        raise EnvironmentProblemError("KY453", "the cluster has no workers", hint=hint, place=place)
    for address in workers:
        if not is_protected(address):
            what = f"the worker {address} is reached without TLS"
            hint = "start it with --protocol tls and certificates, or the whole cluster on 127.0.0.1"
            raise InputError("KY452", what, hint=hint, place=place)
    versions = client.get_versions(check=False)
    own = _minor(versions["client"])
    for address, of_worker in versions["workers"].items():
        if _minor(of_worker) != own:
            what = f"the worker {address} runs Python {_minor(of_worker)}, and this is {own}: dask wants them equal"
            raise EnvironmentProblemError("KY454", what, hint=f"start workers with Python {own}", place=place)
    return workers


def _minor(versions: Mapping[str, Any]) -> str:
    return ".".join(str(versions["host"]["python"]).split(".")[:2])


def _needs(
    root: Path, parts: Sequence[Part], plans: Mapping[str, VariantPlan], workers: Mapping[str, Mapping[str, Any]]
) -> dict[int, dict[str, float]]:
    """Return for each part what of the workers' resources it takes: memory, for the source that takes the most.

    With less it could not be compiled at all; with more a build uses it, as each looks at what its machine has left.
    """
    declared: dict[str, float] = {}
    for resources in _with_memory(workers).values():
        for name, most in resources.items():
            declared[name] = max(declared.get(name, 0.0), most)
    needs, costs = {}, Costs(root / WORK_FOLDER / "costs.json")
    for part in parts:
        groups = [group for name in part.names for group in (plans[name].binding, *plans[name].groups)]
        most = max((costs.memory(f".dir{root}/{source}.o") for group in groups for source in group.sources), default=0)
        needs[part.number] = {name: min(float(most), limit) for name, limit in declared.items()}
    return needs


def _with_memory(workers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the workers that declare memory, and how much: where some do, tasks that ask for it go to these alone."""
    of_workers = {
        address: {name: float(most) for name, most in about.get("resources", {}).items() if name.lower() == _MEMORY}
        for address, about in workers.items()
    }
    return {address: resources for address, resources in of_workers.items() if resources}


class _ByValue:
    """Has a function sent as it is, for workers that do not have its module."""

    def __init__(self, function: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        import cloudpickle

        self._function = function
        cloudpickle.register_pickle_by_value(worker)
        try:
            self._pickled: bytes = cloudpickle.dumps(function)
        finally:
            cloudpickle.unregister_pickle_by_value(worker)

    def __call__(self, order: dict[str, Any]) -> dict[str, Any]:
        return self._function(order)

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        import cloudpickle

        return cloudpickle.loads, (self._pickled,)


@dataclass(slots=True)
class _At:
    """What a part is at: on which worker, since when, and what that said last."""

    worker: str
    doing: str
    since: float


class _Told:
    """What workers tell while they build, as one state of the whole."""

    def __init__(self, parts: Sequence[Part], watch: Callable[[Snapshot], None]) -> None:
        self._parts = {part.number: part for part in parts}
        self._watch = watch
        self._lock = threading.Lock()
        self._at: dict[int, _At] = {}
        self._done = 0

    def hear(self, event: tuple[Any, Mapping[str, Any]]) -> None:
        """Take note of what a worker tells."""
        about = event[1]
        number, address, doing = int(about["part"]), str(about["worker"]), str(about["line"] or about["doing"])
        with self._lock:
            before = self._at.get(number)
            if before is None or before.worker != address:
                again = "" if before is None else f" again, after {before.worker} did not come to the end of it"
                _logger.info("%s: building %s%s", address, ", ".join(self._parts[number].names), again)
                self._at[number] = _At(address, doing, time.monotonic())
            else:
                before.doing = doing
            self._tell("")

    def came(self, part: Part) -> None:
        """Take note that what a part builds has come back."""
        with self._lock:
            at = self._at.pop(part.number, None)
            self._done += len(part.names)
            self._tell(f"{', '.join(part.names)} from {at.worker if at is not None else 'a worker'}")

    def worker(self, part: Part) -> str:
        """Return where a part is built."""
        with self._lock:
            at = self._at.get(part.number)
            return at.worker if at is not None else "a worker"

    def _tell(self, said: str) -> None:
        running = tuple(Running(f"{at.worker}: {at.doing}", at.since) for at in self._at.values())
        total = sum(len(part.names) for part in self._parts.values())
        self._watch(Snapshot(self._done, total, running, said, None))


class _Tasks:
    """The tasks of a build on a cluster."""

    def __init__(self, client: Any, order: Mapping[str, Any], options: Sequence[str], told: _Told) -> None:
        self._client = client
        self._order = order
        self._options = options
        self.told = told

    def results(
        self, parts: Sequence[Part], needs: Mapping[int, Mapping[str, float]]
    ) -> Iterator[tuple[Part, dict[str, Any], str]]:
        """Yield each part with its answer and where it was built, as they come; at an end before that, cancel the rest.

        Raises:
            EnvironmentProblemError: A worker failed otherwise than by its build, or all are lost (KY456).
        """
        self._client.subscribe_topic(self._order["topic"], self.told.hear)
        futures = {self._submit(part, needs[part.number]): part for part in parts}
        ended: SimpleQueue[Any] = SimpleQueue()
        for future in futures:
            future.add_done_callback(ended.put)
        try:
            for _ in parts:
                future = self._next(ended)
                part = futures[future]
                yield part, self._answer(future, part), self.told.worker(part)
        finally:
            self._client.cancel(list(futures))
            self._client.unsubscribe_topic(self._order["topic"])

    def _next(self, ended: SimpleQueue[Any]) -> Any:
        """Wait for a task that has ended; without a worker it would be for ever, unless one comes."""
        patience = _PATIENCE_S
        while True:
            with suppress(Empty):
                return ended.get(timeout=_LOOK_S)
            connected = self._client.status == "running"
            patience = _PATIENCE_S if connected and self._client.scheduler_info()["workers"] else patience - _LOOK_S
            if patience <= 0:
                raise _lost("all workers are" if connected else "the scheduler is")

    def _submit(self, part: Part, needs: Mapping[str, float]) -> Any:
        import dask

        arguments = [*(f"--variant={name}" for name in part.names), *self._options]
        order = {**self._order, "part": part.number, "arguments": arguments}
        # What is sent is some megabytes, and each task needs all of it.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            return self._client.submit(
                _ByValue(worker.build_part),
                order,
                key=f"kernelyard-{part.names[0]}-{uuid.uuid4().hex}",
                pure=False,
                retries=_RETRIES,
                resources=dict(needs) or None,
            )

    def _answer(self, future: Any, part: Part) -> dict[str, Any]:
        import distributed

        place, names = Place(self.told.worker(part)), ", ".join(part.names)
        if future.cancelled():  # by dask itself, which then has nobody to ask
            raise _lost("the scheduler is")
        try:
            answer: dict[str, Any] = future.result()
        except distributed.KilledWorker:
            what = f"each worker that built {names} was lost"
            hint = "most likely the memory ran out there: see their logs, give them more, or build with --jobs 1"
            raise EnvironmentProblemError("KY456", what, hint=hint, place=place) from None
        except (KernelyardError, KeyboardInterrupt):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the worker's machine had
            what = f"building {names} failed: {type(error).__name__}: {error}"
            raise EnvironmentProblemError("KY456", what, hint="see the log of the worker", place=place) from None
        return answer


def _lost(who: str) -> EnvironmentProblemError:
    return EnvironmentProblemError("KY456", f"{who} lost", hint="see the logs there, and start the cluster again")
