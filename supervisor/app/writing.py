"""The one thread that speaks to the store: SQLite has one writer, and the loop must never wait for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from supervisor.store.store import Store

T = TypeVar("T")


class Writer:
    """Calls on the store, one after the other, off the loop."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    async def call(self, work: Callable[[Store], T]) -> T:
        """``work(store)`` in the store's thread. Raises what it raises, StoreError above all.

        A cancelled caller does not cancel a transaction that has begun: it is waited for, so that memory and store agree.
        """
        task = asyncio.get_running_loop().run_in_executor(self._thread, work, self.store)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self.store.close()
