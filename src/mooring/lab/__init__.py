"""The real control plane on loopback: found or built, started, and gone without a trace."""
