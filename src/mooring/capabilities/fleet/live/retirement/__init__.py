"""Retiring a machine: its node is emptied pod by pod before NoExecute."""
