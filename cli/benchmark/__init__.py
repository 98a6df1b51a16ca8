"""What ``envq bench`` is made of: jobs that lie ready and are released at once, and what is read around them."""
