"""What hostile tenants, servers and requests cannot do: one test per row of docs/security.md."""
