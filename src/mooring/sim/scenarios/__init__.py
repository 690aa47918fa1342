"""Scenes: a small cluster, something a person does, and when it is over. Tests, rehearsals and the demo share them."""
