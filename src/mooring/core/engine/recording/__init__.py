"""What enters the engine and comes out of it, as bytes: recorded, checkpointed, replayed."""
