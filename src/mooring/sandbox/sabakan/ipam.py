"""Which addresses a machine gets: by rack and place in it, from pools, as sabakan computes them."""

import ipaddress

import msgspec


class Ipam(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    max_nodes_in_rack: int = 28
    node_ipv4_pool: str = "10.69.0.0/20"
    node_ipv4_offset: str = ""
    node_ipv4_range_size: int = 6
    node_ipv4_range_mask: int = 26
    node_ip_per_node: int = 3
    node_index_offset: int = 3
    node_gateway_offset: int = 1
    bmc_ipv4_pool: str = "10.72.16.0/20"
    bmc_ipv4_offset: str = "0.0.1.0"
    bmc_ipv4_range_size: int = 5
    bmc_ipv4_range_mask: int = 20
    bmc_ipv4_gateway_offset: int = 1

    def node_addresses(self, rack: int, index: int) -> tuple[str, ...]:
        per = 1 << self.node_ipv4_range_size
        base = _base(self.node_ipv4_pool, self.node_ipv4_offset) + per * self.node_ip_per_node * rack + index
        return tuple(str(ipaddress.IPv4Address(base + per * i)) for i in range(self.node_ip_per_node))

    def bmc_address(self, rack: int, index: int) -> str:
        base = _base(self.bmc_ipv4_pool, self.bmc_ipv4_offset)
        return str(ipaddress.IPv4Address(base + (1 << self.bmc_ipv4_range_size) * rack + index))

    def indexes(self, role: str) -> range:
        """The boot server has a place of its own; all others share the rest of the rack."""
        first = self.node_index_offset
        return range(first, first + 1) if role == "boot" else range(first + 1, first + 1 + self.max_nodes_in_rack)


def _base(pool: str, offset: str) -> int:
    start = int(ipaddress.IPv4Network(pool).network_address)
    return start + (int(ipaddress.IPv4Address(offset)) if offset else 0)
