"""Every Eval Ever's samples."""
