"""The client of a real placement driver, behind `ports.PlacementDriver`.

`transport` gets one answer out of several endpoints, `answers` turns PD's words into the model, `client` knows what to
ask in which order.
"""

from mooring.clients.pd.client import PdClient

__all__ = ["PdClient"]
