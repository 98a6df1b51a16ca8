"""What ``envq demo`` is made of: drivers as users write them, and the judge that counts what they left in Redis."""
