"""A TiKV that holds no data: it registers stores and regions with a real PD over gRPC and does what PD tells it.

With it, evict-leader on a real pd-server really moves leaders. `messages` declares the few messages needed, `cluster` is
the stores and their regions, `wire` talks to PD and survives its restarts.
"""

from tests.faketikv.cluster import FakeTikv

__all__ = ["FakeTikv"]
