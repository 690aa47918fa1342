"""Machine registries behind one port (`ports.MachineRegistry`): sabakan, NetBox, or a plain list of machines.

`choose` opens the one that a URL names. Nothing outside this package names a registry.
"""
