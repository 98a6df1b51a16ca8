"""The worker side: a supervisor process over executor processes that hold variables and run jobs."""
