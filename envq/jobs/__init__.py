"""Jobs: how they are written, enqueued, and waited for."""
