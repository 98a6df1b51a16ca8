"""What a supervisor is made of: processes, heartbeats, commands, settlements."""
