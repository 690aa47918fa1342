"""Scenarios: build a cluster, do what a person does, say when it is over."""
