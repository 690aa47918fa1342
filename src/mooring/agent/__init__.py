"""The agent: one small process a node that brings the cloud's notice to the Node object.

It runs on every node of a cluster, so it imports the standard library and nothing else of mooring.
"""
