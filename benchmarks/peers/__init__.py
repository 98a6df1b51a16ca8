"""What runs in the peers' own environments: the work, one module for each queue, the producer, the floor."""
