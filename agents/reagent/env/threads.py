import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_thread(function: Callable[[], T], name: str) -> Future[T]:
    """Run a function in a daemon thread of its own. What it raises stays in the future, SystemExit too.
    A pool's threads are shared and waited for at exit: one hanging call would keep others waiting and the process alive."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # nobody can take back what runs

    def work() -> None:
        try:
            future.set_result(function())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the caller reads it from the future
            future.set_exception(error)

    threading.Thread(target=work, daemon=True, name=name).start()
    return future
