"""Scenarios: a small cluster, something a person does, and when it is over; for tests, rehearsals and the demo."""
