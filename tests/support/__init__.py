"""What several rings of tests share: servers, processes, waiting."""
