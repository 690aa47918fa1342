"""The sandbox's API server over HTTP(S) on loopback: what kubectl and our own client talk to."""
