import threading
import time

import pytest

from concal.calibration.workers import Workers


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_tasks_order(threads):
    workers = Workers(threads)

    def late(k):
        time.sleep(0.002 * (3 - k % 4))
        return k * k

    for n in (0, 1, 2, 23):
        assert workers.map(late, range(n)) == [k * k for k in range(n)]
    workers.close()


def test_threads_work_at_the_same_time():
    workers = Workers(3)
    meet = threading.Barrier(3, timeout=20)
    workers.map(lambda _: meet.wait(), range(3))  # would break the barrier were they one after the other
    workers.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_tasks_error_is_raised_and_the_threads_live_on(threads):
    workers = Workers(threads)

    def fail(k):
        if k in (4, 9):
            raise ValueError(f"task {k}")
        return k

    with pytest.raises(ValueError, match="task 4"):
        workers.map(fail, range(12))
    assert workers.map(fail, range(3)) == [0, 1, 2]
    workers.close()
