"""How Home behaves, for the whole installation. Labels on a TidbCluster or StatefulSet say otherwise for one."""

from enum import StrEnum
from typing import Annotated

import msgspec


class HomeMode(StrEnum):
    #: While its home is among the candidates, a member goes nowhere else.
    REQUIRE = "require"
    #: Its home gets the highest score, and the scheduler weighs it against the rest.
    PREFER = "prefer"


Seconds = Annotated[float, msgspec.Meta(ge=0)]


class HomePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: For members whose TidbCluster or StatefulSet has no label: `require` the home, or `prefer` it.
    mode: HomeMode = HomeMode.REQUIRE
    #: A reservation is given up this long after the old pod's grace has ended.
    hold_s: Seconds = 120.0
    #: How long tidb-operator gets to write a member's node itself (its resync takes 30 s).
    settle_s: Seconds = 60.0
    #: The largest request of a kube-scheduler: 5,000 full Nodes are 36 MB.
    body_limit_mb: Annotated[int, msgspec.Meta(ge=1)] = 64
    #: Nodes reserved at one time for the members of one namespace.
    reserve_per_namespace: Annotated[int, msgspec.Meta(ge=0)] = 3
    #: Nodes reserved at one time in the whole cluster.
    reserve_in_all: Annotated[int, msgspec.Meta(ge=0)] = 10
