"""Files of the fleet: cluster.yml, templates, constraints and plans, read and written."""
