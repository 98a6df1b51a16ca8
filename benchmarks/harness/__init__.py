"""What every measurement needs: a server, the workers' processes, drains, the file of results."""
