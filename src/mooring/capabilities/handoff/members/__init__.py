"""PD and TiDB pods: restarted one at a time, the PD leader transferred first."""
