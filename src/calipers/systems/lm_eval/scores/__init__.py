"""What each answer is worth: answers and references in, a number for each out."""
