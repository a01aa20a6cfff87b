"""Where runs are computed: in this process, in a pool of processes, or on Dask. All speak `concurrent.futures`."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from offprints.claims.method import MissingResource

P = ParamSpec("P")
T = TypeVar("T")


class ExecutorError(RuntimeError):
    """The executor could not be started, or lost its workers."""


class Inline(Executor):
    """Computes on `submit`, in this process."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` now; the future that comes back is done."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def opened(name: str, jobs: int) -> Generator[tuple[Executor, int], None, None]:
    """Open the executor of that name, yield it with the number of tasks to keep on it, and close it after.

    Args:
        name: "inline", "processes" (a local pool), "dask" (a local cluster), or a Dask scheduler's "tcp://host:port".
        jobs: workers of a local pool or cluster.

    Raises:
        ValueError: if there is no such executor.
        MissingResource: if Dask is not installed.
        ExecutorError: if the scheduler does not answer.
    """
    if name == "inline":
        yield Inline(), 1
    elif name == "processes":
        pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _die_with_parent)
        try:
            yield pool, 2 * jobs
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    elif name == "dask" or "://" in name:
        with _dask(name, jobs) as running:
            yield running
    else:
        raise ValueError(f"executor must be 'inline', 'processes', 'dask' or a Dask address, got {name!r}.")


def _die_with_parent() -> None:
    """In a worker: end when the runner is gone; one that is killed cannot tell its pool."""
    runner = multiprocessing.parent_process()
    threading.Thread(target=lambda: (runner and runner.join(), os._exit(1)), daemon=True).start()


@contextmanager
def _dask(name: str, jobs: int) -> Generator[tuple[Executor, int], None, None]:
    try:
        from distributed import Client, LocalCluster
    except ModuleNotFoundError as error:
        raise MissingResource('the Dask executor needs distributed: pip install "offprints[dask]"') from error
    timeout = float(os.environ.get("OFFPRINTS_DASK_TIMEOUT", "10"))
    cluster = None
    try:
        if name == "dask":
            cluster = LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None, silence_logs=50)
        client = Client(cluster or name, timeout=timeout)
    except (OSError, ValueError) as error:
        raise ExecutorError(f"no Dask scheduler answers at {name} within {timeout:g} s: {error}") from error
    try:
        workers = sum(client.ncores().values())
        if not workers:
            raise ExecutorError(f"the Dask scheduler at {name} has no workers. Start some and run again.")
        yield client.get_executor(pure=False), 2 * workers
    finally:
        client.close()
        if cluster is not None:
            cluster.close()
