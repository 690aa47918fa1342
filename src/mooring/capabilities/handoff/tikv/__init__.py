"""TiKV pods: leaders evicted, the store proven empty, the pod restarted."""
