"""What a terminal shows of a running Mooring: the rows of its page, as text."""
