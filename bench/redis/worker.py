"""A process that delivers from Redis: `python -m bench.redis.worker`. It talks as the worker of the other servers does.

The table of a job is among its options.
"""

from __future__ import annotations

from functools import partial

from bench.redis.hand import AsyncRedisHand, RedisHand
from bench.servers.drivers import Driver
from bench.servers.worker import Job, serve


def driver_of(job: Job) -> Driver:
    """The one driver, in the colour of the job."""
    is_async = job.driver == "asyncio"
    by_hand = AsyncRedisHand if is_async else RedisHand
    return Driver(job.driver, is_async, job.url, partial(by_hand, job.url, job.options["table"]))


if __name__ == "__main__":
    serve(driver_of)
