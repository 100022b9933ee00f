"""The isolation battery: point it at an attention function, a cache of requests or a pool of blocks, and it says whether requests
are alone.

from labcore.battery import assert_isolated
def test_mine(): assert_isolated(MyCache)
"""

from labcore.battery.interfaces import (
    Attention,
    AttentionClaims,
    BlockPool,
    CacheClaims,
    PoolClaims,
    Request,
    RequestCache,
    Started,
    View,
)
from labcore.battery.runner import Report, assert_isolated, run

__all__ = [
    "Attention",
    "AttentionClaims",
    "BlockPool",
    "CacheClaims",
    "PoolClaims",
    "Report",
    "Request",
    "RequestCache",
    "Started",
    "View",
    "assert_isolated",
    "run",
]
