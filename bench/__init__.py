"""Figures we claim, each with the command that makes it: `make bench`, or `make bench B=queue` for one."""
