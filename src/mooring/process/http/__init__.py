"""HTTP: health, metrics, the read-only API, the extender and the webhooks. Each endpoint says whether it fails open."""
